"""A worker process as the server sees it: its channel, and the calls that are in it.

Nothing that a worker sends is believed before it is checked. One that breaks the protocol is ended,
with the calls in it; no other is touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from agentix.wire import messages
from agentix.wire.errors import MalformedError
from agentix.wire.frames import payload_size
from agentix.wire.messages import (
    Cancel,
    Failure,
    Item,
    Ready,
    Record,
    Reply,
    Signal,
    Taken,
    Value,
)
from agentix_runtime.channel import Channel
from agentix_runtime.parcel import Parcel, Payload, drop
from agentix_runtime.server.process import Spawned, kill_group

if TYPE_CHECKING:
    from agentix_runtime.server.capture import Outputs

Said: TypeAlias = Record | Signal | Reply

_FROM_WORKER: Final = (Value, Failure, Record, Item, Signal, Reply, Ready)
_ITS_FAILURES: Final = frozenset({"raised", "refused", "cancelled"})
"""What a worker can know; how it ended itself, and what the server keeps, are not among it."""

_FEW: Final = 4
"""Up to so many calls at once, each is passed on at once; more of them travel together."""

_AFTER_KILL: Final = 1.0

_MANY: Final = 16
_CLOSE: Final = 0.001
"""So many records, each within so many seconds of the one before, are a burst."""

_PAUSE: Final = 0.001


class Job(Protocol):
    """A call, to be told what becomes of it."""

    id: str
    target: str

    def ended(self, head: bytes, payload: Payload) -> None:
        """Take the outcome over: an encoded Value or Failure. Called once."""

    def yielded(self, item: Item, head: bytes, payload: Payload) -> None:
        """Take an item over, or raise MalformedError."""


class Keeper(Protocol):
    """Who has the workers, and hears of what they do."""

    def lost(self, worker: Worker) -> None:
        """Know that the channel has ended."""

    def overdue(self, worker: Worker, job: Job) -> None:
        """Know that a call goes on long after it was cancelled."""

    def settled(self, worker: Worker) -> None:
        """Know that no call is left in it but those that are overdue."""

    def answered(self, call_id: str) -> None:
        """Know that an outcome or an item of this call is about to be passed on."""

    def said(self, worker: Worker, message: Said, payload: Payload | None) -> None:
        """Take over what is not about a call."""


class Worker:
    """One worker process, from its start to its end."""

    def __init__(self, spawned: Spawned, keeper: Keeper, outputs: Outputs, grace: float) -> None:
        self.pid = spawned.pid
        self.ready = False
        self.worn = False
        self.code: int | None = None
        self.why = ""
        self.gone = asyncio.Event()
        self._keeper = keeper
        self._outputs = outputs
        self._grace = grace
        self._calls: dict[str, Job] = {}
        # Cancelled calls that have not ended; None once that takes too long.
        self._cancelled: dict[str, asyncio.TimerHandle | None] = {}
        self._burst = 0
        self._recorded = 0.0
        self._channel = Channel(spawned.sock, self._receive, lambda _: keeper.lost(self))

    @property
    def wanted(self) -> int:
        """How many calls are in it that somebody waits for."""
        return len(self._calls) - len(self._cancelled)

    @property
    def free(self) -> bool:
        """Whether nothing is in it any more that has a claim to go on."""
        return len(self._calls) == sum(timer is None for timer in self._cancelled.values())

    def give(self, job: Job, head: bytes, payload: Payload) -> None:
        """Pass a call to the worker."""
        if self._channel.closed:
            drop(payload)
            job.ended(exited(job.id, self.code, "before the call began", self.why), b"")
            return
        self._calls[job.id] = job
        self._channel.send(head, payload, alone=len(self._calls) <= _FEW)

    def runs(self, call_id: str) -> bool:
        """Tell whether this call is in it."""
        return call_id in self._calls

    def taken(self, call_id: str, number: int) -> None:
        """Tell how far the items of a stream have been taken."""
        if call_id in self._calls:
            self._channel.send(messages.dump(Taken(call_id, number)))

    def cancel(self, call_id: str) -> None:
        """Tell that a call is not wanted any more; nothing of it is heard of from now on."""
        if call_id in self._calls and call_id not in self._cancelled:
            loop = asyncio.get_running_loop()
            self._cancelled[call_id] = loop.call_later(self._grace, self._overdue, call_id)
            self._channel.send(messages.dump(Cancel(call_id)))

    def send(self, message: Signal | Reply, payload: Payload) -> None:
        """Pass on an event."""
        self._channel.send(messages.dump(message), payload)

    def end(self, code: int, why: str) -> None:
        """Take what it left behind, and fail the calls that it did not answer, saying *why*."""
        self._channel.shut()  # a child of its may have the other end, and write without end
        self._channel.drain()
        self._channel.close()
        self._outputs.ended()
        self.code, self.why = code, why
        self.gone.set()
        self._fail()

    def discard(self) -> None:
        """Force its end, and that of the processes of its group."""
        if not self.gone.is_set():
            kill_group(self.pid)

    async def close(self, grace: float) -> None:
        """Ask it to end by closing its channel, then force it."""
        self._channel.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self.gone.wait()
        kill_group(self.pid)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AFTER_KILL):
                await self.gone.wait()

    def _fail(self) -> None:
        calls, self._calls = self._calls, {}
        for call_id, job in calls.items():
            self._settle(call_id)
            self._keeper.answered(call_id)
            job.ended(exited(call_id, self.code, "before the call ended", self.why), b"")

    def _receive(self, head: bytes, payload: Payload | None) -> None:
        try:
            self._take(head, payload)
        except MalformedError:
            drop(payload)
            raise

    def _take(self, head: bytes, payload: Payload | None) -> None:
        message = messages.load(head, _FROM_WORKER)
        if isinstance(message, Value | Failure):
            job = self._calls.get(message.id)
            if isinstance(message, Value):
                _check(payload, payload_size(message.segments))
            else:
                _check(payload, 0)
                if message.kind not in _ITS_FAILURES:
                    raise MalformedError("a worker tells what it cannot know")
            if job is None:
                drop(payload)  # one answer to a call is enough
                return
            del self._calls[message.id]
            if self._cancelled:
                self._settle(message.id)
            if payload is None:
                head, payload = no_descriptors(message.id), b""
            self._keeper.answered(message.id)
            job.ended(head, payload)
            if self.worn and self.free:
                self._keeper.settled(self)
        elif isinstance(message, Item):
            _check(payload, payload_size(message.segments))
            job = self._calls.get(message.id)
            if job is None or message.id in self._cancelled:
                drop(payload)
            elif payload is None:
                job.ended(no_descriptors(message.id), b"")
                self.cancel(message.id)
            else:
                self._keeper.answered(message.id)
                job.yielded(message, head, payload)
        elif isinstance(message, Ready):
            _check(payload, 0)
            self.ready = True
        elif isinstance(message, Record | Signal | Reply):
            _check(payload, payload_size(message.segments))
            self._keeper.said(self, message, payload)
            if isinstance(message, Record):
                self._has_recorded()

    def _has_recorded(self) -> None:
        """Have the records of a burst come together: alone, each costs both sides twice as much."""
        now = time.monotonic()
        self._burst = self._burst + 1 if now - self._recorded < _CLOSE else 0
        self._recorded = now
        if self._burst >= _MANY:
            self._channel.rest(_PAUSE)

    def _settle(self, call_id: str) -> None:
        if (timer := self._cancelled.pop(call_id, None)) is not None:
            timer.cancel()

    def _overdue(self, call_id: str) -> None:
        self._cancelled[call_id] = None
        self._keeper.overdue(self, self._calls[call_id])


def _check(payload: Payload | None, size: int) -> None:
    """Compare a payload with what its message says of it."""
    if payload is None:
        return
    found = payload.size if isinstance(payload, Parcel) else len(payload)
    if found != size:
        raise MalformedError("a payload is not as long as its message says")


def no_descriptors(call_id: str) -> bytes:
    """Tell that a large result cannot be taken."""
    text = "the server has too many open files to take the result; make fewer calls at once"
    return messages.dump(Failure(call_id, "refused", "OSError", text))


def exited(call_id: str, code: int | None, when: str, why: str) -> bytes:
    """Tell that a call ended with its worker."""
    text = f"the worker {how_ended(code)} {when}" + (f": {why}" if why else "")
    return messages.dump(Failure(call_id, "exited", "WorkerExited", text, returncode=code))


def how_ended(code: int | None) -> str:
    """Say how a process ended."""
    if code is None:
        return "closed its channel"
    return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
