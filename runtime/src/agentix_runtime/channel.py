"""The private socket between server and worker: frames both ways, neither waiting for the other.

A frame leaves at once when little is going on, else together with the others of its turn of the
loop, in order in either case. Reading goes on whatever writing does, so the two directions cannot
block each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from agentix.wire.errors import MalformedError
from agentix_runtime.inbox import Inbox
from agentix_runtime.outbox import Outbox
from agentix_runtime.parcel import Payload, drop

if TYPE_CHECKING:
    from collections.abc import Callable

_HIGH_WATER: Final = 8 << 20
_LOW_WATER: Final = 1 << 20
_LOOK_EVERY: Final = 50  # milliseconds
_MANY: Final = 4
"""More frames than that in one piece are answered in one piece."""


class Channel:
    """One end of the socket.

    ``receive`` is called with the head and the payload of each frame; a parcel is its own once it
    returns, and ``None`` stands for a parcel that this process had no descriptor left for. If it
    raises, the channel ends: no frame is ever taken twice. ``lost`` is called once, with the
    reason, when the other end is gone or sends what is no frame.
    """

    def __init__(
        self,
        sock: socket.socket,
        receive: Callable[[bytes, Payload | None], None],
        lost: Callable[[str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._sock = sock
        self._receive = receive
        self._lost = lost
        self._inbox = Inbox()
        self._outbox = Outbox()
        # Held only across calls that do not wait. That it knows its thread is for send_now, which
        # may be reached from inside of them: a finalizer or signal handler may log.
        self._lock = threading.RLock()
        self._flushing = False
        self._blocked = False
        self.gathering = False
        """Whether many frames have come at once, and those behind this one are yet to be taken."""
        self._resting: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._room.set()
        sock.setblocking(False)
        self._loop.add_reader(sock, self._readable)

    @property
    def closed(self) -> bool:
        """Whether the channel has come to its end."""
        return self._sock.fileno() < 0

    def send(self, head: bytes, payload: Payload = b"", *, alone: bool = True) -> None:
        """Send a frame, or queue it; from any thread.

        One that is not ``alone`` waits for the end of the loop's turn, for others to come along.
        A parcel is the channel's from then on, and closed once it is sent. After the channel's end,
        frames go nowhere.
        """
        with self._lock:
            if self.closed:
                drop(payload)
                return
            self._outbox.add(head, payload)
            if alone and not (self._blocked or self._outbox.crowded):
                self._outbox.push(self._sock)
                if not self._outbox.frames:
                    return
            if self._flushing:
                return
            if threading.get_ident() != self._thread:
                self._flushing = True
                self._loop.call_soon_threadsafe(self._flush)
            elif not self.gathering:
                self._flushing = True
                self._loop.call_soon(self._flush)

    def send_now(self, head: bytes, payload: Payload, patience: float) -> bool:
        """Send a frame before returning, so that it is not lost if this process dies next.

        From any thread, however busy the loop is. While the other end does not keep up, this waits
        for it, up to *patience* seconds. Returns False if the frame had to be dropped.
        """
        if self._lock._is_owned():  # type: ignore[attr-defined]
            self._loop.call_soon_threadsafe(self.send, head, payload)
            return True
        end = 0.0
        while True:
            with self._lock:
                if self.closed:
                    break
                if self._outbox.frames:
                    self._outbox.push(self._sock)
                if self._outbox.size <= _LOW_WATER:
                    self._outbox.add(head, payload)
                    self._outbox.push(self._sock)
                    if self._outbox.frames and not self._flushing:
                        self._flushing = True
                        self._loop.call_soon_threadsafe(self._flush)
                    return True
                end = end or time.monotonic() + patience
                if time.monotonic() >= end:
                    break
                poll = select.poll()
                poll.register(self._sock, select.POLLOUT)
            poll.poll(_LOOK_EVERY)
        drop(payload)
        return False

    def rest(self, seconds: float) -> None:
        """Read nothing new for a moment, so that what comes meanwhile comes together."""
        if self._resting is None and not self.closed:
            self._loop.remove_reader(self._sock)
            self._resting = self._loop.call_later(seconds, self._rested)

    def _rested(self) -> None:
        self._resting = None
        if not self.closed:
            self._loop.add_reader(self._sock, self._readable)

    async def room(self) -> None:
        """Wait until the other end keeps up; only in the loop's thread."""
        if self._outbox.size > _HIGH_WATER:
            self._room.clear()
            await self._room.wait()

    def shut(self) -> None:
        """Have nothing more written to this end, whoever has got hold of the other one."""
        if not self.closed:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RD)

    def drain(self) -> None:
        """Read what the other end has written by now."""
        while not self.closed and self._readable():
            pass

    def close(self) -> None:
        """End the channel, without telling ``lost``."""
        with self._lock:
            if self.closed:
                return
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
            self._outbox.drop()
        self._inbox.drop()
        self._room.set()

    def abandon(self) -> None:
        """Let go of the channel in a forked child: it is the other process's alone."""
        self._lock = threading.RLock()  # a thread that is not here may have held the old one
        self._sock.close()
        self._outbox.drop()
        self._inbox.drop()

    def _end(self, reason: str) -> None:
        if not self.closed:
            self.close()
            self._lost(reason)

    def _readable(self) -> bool:
        """Read once, or go on with what has been read; tell whether there may be more."""
        if self._inbox.rest:
            self._inbox.rest = False
        elif not self._read():
            return False
        wrong = ""
        try:
            self._inbox.take_apart()
        except MalformedError as exc:
            wrong = str(exc)
        try:
            self._deliver()
        except MalformedError as exc:
            wrong = wrong or str(exc)
        except BaseException:
            self._end("a frame could not be taken")
            raise
        if wrong:
            self._end(wrong)
        elif self._inbox.rest and not self.closed:
            self._loop.call_soon(self._go_on)
        return not wrong

    def _go_on(self) -> None:
        if self._inbox.rest and not self.closed:
            self._readable()

    def _read(self) -> bool:
        try:
            count = self._inbox.read(self._sock)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as exc:
            self._end(f"reading failed: {exc.strerror}")
            return False
        if count == 0:
            self._end("the other end closed it")
            return False
        return True

    def _deliver(self) -> None:
        """Pass on what has come; a receiver may have the loop run, and so come back to here."""
        arrived = self._inbox.arrived
        if len(arrived) > _MANY:
            self.gathering = True
        try:
            while arrived:
                head, payload = arrived.popleft()
                try:
                    self._receive(head, payload)
                except BaseException:
                    drop(payload)
                    raise
        finally:
            if self.gathering:
                self.gathering = False
                with self._lock:
                    if self._outbox.frames and not self._flushing:
                        self._flush()

    def _flush(self) -> None:
        """End a turn: send what has gathered in it, now or once the socket takes it."""
        with self._lock:
            self._flushing = False
            if self.closed:
                return
            if self._blocked:
                self._loop.remove_writer(self._sock)
                self._blocked = False
            if not self._outbox.push(self._sock):
                return  # reading will find the channel at its end
            if self._outbox.frames:
                self._flushing = True
                if self._outbox.crowded:
                    self._loop.call_later(0.01, self._flush)
                else:
                    self._loop.add_writer(self._sock, self._flush)
                    self._blocked = True
        if self._outbox.size <= _HIGH_WATER // 2:
            self._room.set()
