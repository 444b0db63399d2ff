"""Holding sandboxes that would outlive this process, so that they end soon after it has.

The runtime of such a sandbox has a lease: it ends by itself once no process has held it for that
long. A hold is a connection whose only use is that it ends with its process, however that ends. So
nothing has to be done in time to keep it: a process whose loop is busy, or that is stopped, holds
on. It is this process's and no loop's; children that are forked do not have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from agentix.client.held_socket import HeldSocket
from agentix.errors import ProviderError
from agentix.wire.protocol import LEASE_ENDED

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.provider.runtime_folder import RuntimeFolder
    from agentix.provider.sandbox import SandboxId

__all__ = ["LEASE_ENDED", "hold_lease", "lease_arguments", "release_lease"]

_FIRST: Final = 10.0
"""Seconds after which a sandbox that has answered already does not let itself be held."""

_ANSWER: Final = 15.0
_LEAVING: Final = 0.1
_SHORTEST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 2.0
_LONGEST_HEAD: Final = 4096
_HELD: Final = re.compile(rb"HTTP/1\.1 200 ")


def lease_arguments(seconds: float | None) -> tuple[str, ...]:
    """Return the arguments that give a runtime a lease; none for None, which is no lease."""
    return () if seconds is None else ("--lease", repr(float(seconds)))


async def hold_lease(folder: RuntimeFolder, seconds: float | None) -> None:
    """Hold the sandbox of *folder*, whose lease is *seconds*, until it is released.

    Nothing happens when it has no lease (None), or is held by this process already. Raises
    ProviderError when it does not let itself be held.
    """
    if seconds is None:
        return
    hold, new = _keeper.take(folder, seconds)
    pause = 0.001
    try:
        async with asyncio.timeout(_FIRST):
            while not hold.established:
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, 0.05)
    except BaseException as error:
        if new:
            release_lease(folder.sandbox_id)
        if isinstance(error, TimeoutError):
            message = f"sandbox {folder.sandbox_id} does not let itself be held: {hold.problem}"
            raise ProviderError(message) from error
        raise


def release_lease(sandbox_id: SandboxId) -> None:
    """Hold this sandbox no longer, if it is held."""
    _keeper.release(sandbox_id)


class _Hold:
    """One sandbox that is held, or about to be."""

    def __init__(self, folder: RuntimeFolder, seconds: float) -> None:
        self.established = False
        self.problem = "it does not answer"
        self.due = 0.0
        """When to do something if nothing has happened: to connect, or to give up waiting."""
        self.socket: socket.socket | None = None
        self._folder: Path = folder.path
        self._path = str(folder.socket)
        self._target: HeldSocket | None = None
        self._request = (
            f"POST /hold HTTP/1.1\r\nHost: sandbox\r\nAuthorization: Bearer {folder.token}\r\n\r\n"
        ).encode()
        self._head = b""
        self._since = 0.0
        self._longest_pause = min(_LONGEST_PAUSE, seconds / 8)
        self._pause = _SHORTEST_PAUSE

    @property
    def over(self) -> bool:
        """Whether there is nothing to hold any more: somebody has deleted the sandbox."""
        return self.socket is None and not self._folder.exists()

    def go_on(self, now: float) -> None:
        """Do what is due."""
        if self.socket is not None:
            self.problem = "it does not answer"
            self._broken(now)
            return
        try:
            if self._target is None:
                self._target = HeldSocket(self._path)
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self.socket.connect(self._target.path)
            self.socket.send(self._request)
        except OSError as error:  # also: the queue of its connections is full
            self.problem = error.strerror or str(error)
            self._broken(now)
        else:
            self.due = now + _ANSWER

    def readable(self, now: float) -> None:
        """Take what has come: the head of the answer, or the end of the hold."""
        if self.socket is None:
            return
        data = b""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            data = self.socket.recv(_LONGEST_HEAD)
        self._head += data
        if not data or self.established or len(self._head) > _LONGEST_HEAD:
            self.problem = "it ends the connection"
            self._broken(now)
        elif b"\r\n\r\n" in self._head:
            if _HELD.match(self._head) is None:
                status = self._head.partition(b"\r\n")[0].decode("ascii", "replace")
                self.problem = f"it answers {status!r}"
                self._broken(now)
            else:
                self.established, self._since, self.due = True, now, float("inf")

    def _broken(self, now: float) -> None:
        """Close the connection and have another one made soon."""
        if self.established and now - self._since > self._longest_pause:
            self._pause = _SHORTEST_PAUSE
        self._disconnect()
        self.due = now + self._pause
        self._pause = min(2 * self._pause, self._longest_pause)

    def _disconnect(self) -> None:
        self.established = False
        self._head = b""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def close(self, *, forked: bool = False) -> None:
        """Let go; in a child of the process that holds, only of the child's descriptors."""
        if self.socket is not None and not forked:
            # Closing alone would have no effect while the keeper's thread waits for the socket.
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
        self._disconnect()
        if self._target is not None:
            self._target.close()


class _Keeper:
    """All sandboxes that this process holds, and the thread that takes broken holds up again."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(
            # Never in the middle of a change: each descriptor is in its place.
            before=lambda: self._lock.acquire(),
            after_in_parent=lambda: self._lock.release(),
            after_in_child=self._forked,
        )

    def _forget(self) -> None:
        self._lock = threading.RLock()
        self._holds: dict[str, _Hold] = {}
        self._thread: threading.Thread | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None

    def _forked(self) -> None:
        for hold in self._holds.values():
            hold.close(forked=True)
        for end in self._bell or ():
            end.close()
        self._forget()

    def take(self, folder: RuntimeFolder, seconds: float) -> tuple[_Hold, bool]:
        """Return the hold of this sandbox, and whether it is a new one."""
        with self._lock:
            hold = self._holds.get(folder.sandbox_id)
            if hold is not None:
                return hold, False
            hold = self._holds[folder.sandbox_id] = _Hold(folder, seconds)
            try:
                if self._thread is None:
                    self._start()
            except (OSError, RuntimeError) as error:  # no descriptors, no threads
                del self._holds[folder.sandbox_id]
                raise ProviderError(
                    f"sandbox {folder.sandbox_id} cannot be held: {error}; have this process do"
                    " less at once, or raise its limits"
                ) from error
            self._ring()
            return hold, True

    def _start(self) -> None:
        bell = socket.socketpair()
        thread = threading.Thread(
            target=self._run, args=bell[:1], name="agentix leases", daemon=True
        )
        try:
            thread.start()
        except BaseException:
            for end in bell:
                end.close()
            raise
        self._bell, self._thread = bell, thread

    def release(self, sandbox_id: str) -> None:
        """Let go, and of the thread, too, when nothing else is held."""
        with self._lock:
            hold = self._holds.pop(sandbox_id, None)
            if hold is None:
                return
            hold.close()
            thread = None if self._holds else self._thread
            self._ring()
        # It ends at once, unless it gets no processor; the caller's loop does not wait for that.
        end = time.monotonic() + _LEAVING
        while thread is not None and not self._holds and time.monotonic() < end:
            thread.join(0.01)
            if not thread.is_alive():
                return

    def _ring(self) -> None:
        if self._bell is not None:
            with contextlib.suppress(OSError):
                self._bell[1].send(b"x", socket.MSG_DONTWAIT)

    def _run(self, bell: socket.socket) -> None:
        # A signal that arrives here would not wake the main thread, which is to handle it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            with self._lock:
                holds, wait = self._look()
                if not self._holds:
                    for end in self._bell or ():
                        end.close()
                    self._bell = self._thread = None
                    return
            poll = select.poll()
            poll.register(bell, select.POLLIN)
            for descriptor in holds:
                poll.register(descriptor, select.POLLIN)
            ready = poll.poll(wait)
            with self._lock:
                for descriptor, _ in ready:
                    if descriptor == bell.fileno():
                        bell.recv(_LONGEST_HEAD)
                    elif (hold := holds[descriptor]) in self._holds.values():
                        hold.readable(time.monotonic())

    def _look(self) -> tuple[dict[int, _Hold], float | None]:
        """Do what is due; return what to wait for, and for how many milliseconds at most."""
        now = time.monotonic()
        waiting: dict[int, _Hold] = {}
        due = float("inf")
        for sandbox_id, hold in list(self._holds.items()):
            if hold.due <= now:
                hold.go_on(now)
                if hold.over:
                    hold.close()
                    del self._holds[sandbox_id]
                    continue
            if hold.socket is not None:
                waiting[hold.socket.fileno()] = hold
            due = min(due, hold.due)
        return waiting, None if due == float("inf") else max(0.0, due - now) * 1000


_keeper: Final = _Keeper()
