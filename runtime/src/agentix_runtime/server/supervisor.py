"""The worker's keeper: passes calls to it, notices its death, starts the next one.

A call is given to one worker, once. If that worker ends first, the call fails at once and is never
given to another.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

from agentix.wire import messages
from agentix.wire.messages import Call, Cancel, Failure, FailureKind, Ready, Value
from agentix_runtime.channel import Channel, Payload
from agentix_runtime.parcel import drop
from agentix_runtime.server.process import Limits, Reaper, Spawned, kill_group, spawn_worker

if TYPE_CHECKING:
    from collections.abc import Callable

Answer: TypeAlias = tuple[bytes, Payload]

_REMEMBERED: Final = 20_000
"""Ids of ended calls that are still known, so that none of them runs a second time."""

_BAD_STARTS: Final = 3
_PAUSE: Final = 1.0
"""After that many workers in a row that died before they were ready, wait before trying again."""

_FEW: Final = 4
"""Up to so many calls at once, each is passed on at once; more of them travel together."""

_GRACE: Final = 1.0
"""How long a worker may take to end once it is told to, or once it has closed its channel."""


class _Worker:
    """A worker process as the server sees it: its channel, and the calls that wait for it."""

    def __init__(self, spawned: Spawned, lost: Callable[[_Worker], None]) -> None:
        self.pid = spawned.pid
        self.ready = False
        self.code: int | None = None
        self.ended = asyncio.Event()
        self.calls: dict[str, asyncio.Future[Answer]] = {}
        self.channel = Channel(spawned.sock, self._receive, lambda _: lost(self))

    def _receive(self, head: bytes, payload: Payload | None) -> None:
        message = messages.load(head, (Ready, Value, Failure))
        if isinstance(message, Ready):
            self.ready = True
            return
        answer = self.calls.get(message.id)
        if answer is None or answer.done():
            drop(payload)  # nobody waits: the call was cancelled, or has had its one answer
        elif payload is None:
            text = "the server has too many open files to take the result; make fewer calls at once"
            answer.set_result(_failure(message.id, "refused", "OSError", text))
        else:
            answer.set_result((head, payload))

    def end(self, code: int) -> None:
        """Take what it left behind, and fail the calls that it did not answer."""
        self.channel.drain()
        self.channel.close()
        self.code = code
        self.ended.set()
        for call_id, answer in self.calls.items():
            if not answer.done():
                answer.set_result(_exited(call_id, code, "before the call ended"))

    async def kill(self, grace: float) -> None:
        """Wait for its end, then force it on the whole process group."""
        self.channel.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self.ended.wait()
        kill_group(self.pid)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await self.ended.wait()


class Supervisor:
    """Keeps one worker alive and carries calls to it."""

    def __init__(self, reaper: Reaper, limits: Limits, first: Spawned) -> None:
        self._reaper = reaper
        self._limits = limits
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._bad_starts = 0
        self._retry_at = 0.0
        self._last_code: int | None = None
        self._why = ""
        self._closing = False
        self._worker: _Worker | None = None
        self._adopt(first)

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker that answers now."""
        return self._worker.pid if self._worker is not None else None

    async def call(self, head: bytes, call: Call, payload: Payload) -> Answer:
        """Have a call answered. Takes over the payload; cancelling this cancels the call."""
        try:
            if call.id in self._seen:
                return _failure(call.id, "refused", "DuplicateCall", "this call has run already")
            self._remember(call.id)
            worker = self._worker or self._start()
            if worker is None:
                return self._no_worker(call)
            await worker.channel.room()
            if worker.channel.closed:
                return _exited(call.id, worker.code, "before the call began")
            answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            worker.calls[call.id] = answer
            worker.channel.send(head, payload, alone=len(worker.calls) <= _FEW)
            payload = b""  # the channel's now
        finally:
            drop(payload)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():
                drop(answer.result()[1])  # it came in the same turn
            else:
                worker.channel.send(messages.dump(Cancel(call.id)))
            raise
        finally:
            del worker.calls[call.id]

    async def close(self) -> None:
        """End the worker and what it started: by asking, then by force."""
        self._closing = True
        if self._worker is not None:
            await self._worker.kill(_GRACE)

    def _remember(self, call_id: str) -> None:
        self._seen[call_id] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    def _start(self) -> _Worker | None:
        """Start a worker, unless that has failed too often just now."""
        if self._closing or time.monotonic() < self._retry_at:
            return None
        try:
            return self._adopt(spawn_worker(self._limits))
        except OSError as exc:
            self._not_started(f"the worker cannot be started: {exc.strerror}", None)
            return None

    def _adopt(self, spawned: Spawned) -> _Worker:
        worker = self._worker = _Worker(spawned, self._lost)
        self._reaper.watch(spawned.pid, lambda code: self._ended(worker, code))
        return worker

    def _lost(self, worker: _Worker) -> None:
        """Give up a worker that closed its channel or sent nonsense on it; mostly it is dying."""
        if self._worker is worker:
            self._worker = None
        # Its own exit code, if it is about to have one, says more than our signal would.
        asyncio.get_running_loop().call_later(_GRACE, self._discard, worker)

    def _discard(self, worker: _Worker) -> None:
        if not worker.ended.is_set():
            kill_group(worker.pid)

    def _ended(self, worker: _Worker, code: int) -> None:
        worker.end(code)
        if self._worker is worker:
            self._worker = None
        if worker.ready:
            self._bad_starts = 0
            if self._worker is None:
                self._start()
            return
        self._not_started(
            f"the worker {_ended(code)} before it was ready, {self._bad_starts + 1} times in a "
            "row; see the sandbox's output",
            code,
        )

    def _not_started(self, why: str, code: int | None) -> None:
        self._why, self._last_code = why, code
        self._bad_starts += 1
        if self._bad_starts >= _BAD_STARTS:
            self._retry_at = time.monotonic() + _PAUSE

    def _no_worker(self, call: Call) -> Answer:
        if self._closing:
            return _failure(call.id, "refused", "RuntimeClosing", "the runtime is shutting down")
        failure = Failure(call.id, "exited", "WorkerExited", self._why, returncode=self._last_code)
        return messages.dump(failure), b""


def _failure(call_id: str, kind: FailureKind, name: str, text: str) -> Answer:
    return messages.dump(Failure(call_id, kind, name, text)), b""


def _exited(call_id: str, code: int | None, when: str) -> Answer:
    text = f"the worker {_ended(code)} {when}"
    failure = Failure(call_id, "exited", "WorkerExited", text, returncode=code)
    return messages.dump(failure), b""


def _ended(code: int | None) -> str:
    if code is None:
        return "closed its channel"
    return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
