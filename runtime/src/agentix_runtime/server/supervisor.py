"""The workers' keeper: gives them calls, notices their death, starts the next one.

A call is given to one worker, once. If that worker ends first, the call fails at once and is never
given to another. One worker gets all new calls. A worker in which a call will not end, long after
it was cancelled, is worn: another takes its place, and it is ended once its other calls have.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from typing import TYPE_CHECKING, Final

from agentix.wire import messages
from agentix.wire.messages import Failure, Record, Reply, Signal
from agentix_runtime.parcel import drop
from agentix_runtime.server.memory import Memory, is_killed_first
from agentix_runtime.server.process import Limits, Reaper, Spawned, spawn_worker
from agentix_runtime.server.worker import Job, Worker, how_ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix_runtime.parcel import Payload
    from agentix_runtime.server.capture import Capture
    from agentix_runtime.server.journal import Journal
    from agentix_runtime.server.worker import Said

GRACE: Final = 10.0
"""Seconds that a call may take to end once it is cancelled."""

_BAD_STARTS: Final = 3
_PAUSE: Final = 1.0
"""After that many workers in a row that died before they were ready, wait before trying again."""

_TO_END: Final = 1.0
"""How long a worker may take to end once it is told to, or once it has closed its channel."""

_ITS_LOG: Final = "what it wrote is in the sandbox's log"


def _ignore(worker: Worker, message: object, payload: Payload | None) -> None:
    drop(payload)


class Supervisor:
    """Keeps one worker ready for calls, and those that still have some."""

    def __init__(
        self,
        reaper: Reaper,
        limits: Limits,
        first: Spawned,
        journal: Journal,
        capture: Capture,
        *,
        grace: float = GRACE,
        memory: Memory | None = None,
    ) -> None:
        self._reaper = reaper
        self._memory = memory or Memory()
        self._limits = limits
        self._journal = journal
        self._capture = capture
        self._grace = grace
        self._bad_starts = 0
        self._retry_at = 0.0
        self._last_code: int | None = None
        self._why = ""
        self._closing = False
        self._workers: set[Worker] = set()
        self._worker: Worker | None = None
        # A payload is None where there was no descriptor left to take it.
        self.on_signal: Callable[[Worker, Signal, Payload | None], None] = _ignore
        self.on_reply: Callable[[Worker, Reply, Payload | None], None] = _ignore
        self.on_gone: Callable[[Worker], None] = lambda worker: None
        self._adopt(first)

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker that gets new calls."""
        return self._worker.pid if self._worker is not None else None

    def give(self, job: Job, head: bytes, payload: Payload) -> Worker | None:
        """Give a call to a worker; the payload is the worker's then."""
        worker = self._worker or self._start()
        if worker is None:
            drop(payload)
            job.ended(self._no_worker(job.id), b"")
            return None
        worker.give(job, head, payload)
        return worker

    def send_signal(self, signal: Signal, payload: Payload) -> Worker | None:
        """Pass an event of the host to the worker that gets new calls, and say which one that is.

        The payload is taken over.
        """
        worker = self._worker or self._start()
        if worker is None:
            drop(payload)
        else:
            worker.send(signal, payload)
        return worker

    async def close(self) -> None:
        """End the workers and what they started: by asking, then by force."""
        self._closing = True
        async with asyncio.TaskGroup() as group:
            for worker in self._workers:
                group.create_task(worker.close(_TO_END))

    # What a worker's handle tells

    def lost(self, worker: Worker) -> None:
        """Give up a worker that closed its channel or sent nonsense on it; mostly it is dying."""
        if self._worker is worker:
            self._worker = None
        # Its own exit code, if it is about to have one, says more than our signal would.
        asyncio.get_running_loop().call_later(_TO_END, worker.discard)

    def overdue(self, worker: Worker, job: Job) -> None:
        """Give new calls to another worker than one in which a cancelled call does not end."""
        what = f"{job.target} goes on {self._grace:g} s after it was cancelled"
        if worker.free:
            then = "its worker, process {}, is ended: no other call is in it"
        elif worker.worn:
            then = "its worker, process {}, was to be ended already"
        else:
            count = worker.wanted
            calls = f"the {count} other calls" if count > 1 else "the other call"
            then = f"its worker, process {{}}, gets no new calls, and is ended after {calls} in it"
        self._journal.note(f"{what}; {then.format(worker.pid)}", logging.WARNING)
        worker.worn = True
        if worker.free:
            worker.discard()
        if self._worker is worker:
            self._worker = None
            self._start()

    def settled(self, worker: Worker) -> None:
        """End a worn worker."""
        self._journal.note(
            f"the worker, process {worker.pid}, is ended: only calls that were cancelled are in it",
            logging.INFO,
        )
        worker.discard()

    def said(self, worker: Worker, message: Said, payload: Payload | None) -> None:
        """Hand on what is not about a call."""
        if isinstance(message, Record):
            self._journal.take(payload, message.call if worker.runs(message.call) else "")
        elif isinstance(message, Signal):
            self.on_signal(worker, message, payload)
        else:
            self.on_reply(worker, message, payload)

    def answered(self, call_id: str) -> None:
        """Have what the call has logged go before its answer."""
        self._journal.settle(call_id)

    # Starting and ending

    def _start(self) -> Worker | None:
        """Start a worker, unless that has failed too often just now."""
        if self._closing or time.monotonic() < self._retry_at:
            return None
        try:
            return self._adopt(spawn_worker(self._limits))
        except OSError as exc:
            self._not_started(f"the worker cannot be started: {exc.strerror}", None)
            return None

    def _adopt(self, spawned: Spawned) -> Worker:
        outputs = self._capture.read(spawned.stdout, spawned.stderr)
        is_killed_first(spawned.pid)
        worker = self._worker = Worker(spawned, self, outputs, self._grace)
        self._workers.add(worker)
        self._reaper.watch(spawned.pid, lambda code: self._ended(worker, code))
        return worker

    def _ended(self, worker: Worker, code: int) -> None:
        self._workers.discard(worker)
        if self._worker is worker:
            self._worker = None
        why = self._memory.want() if code == -signal.SIGKILL else ""
        worker.end(code, why)
        self.on_gone(worker)
        if worker.ready:
            self._bad_starts = 0
            if self._worker is None:
                self._start()
            return
        self._not_started(
            f"the worker {how_ended(code)} before it was ready, {self._bad_starts + 1} times in a "
            f"row; {why or _ITS_LOG}",
            code,
        )

    def _not_started(self, why: str, code: int | None) -> None:
        self._why, self._last_code = why, code
        self._bad_starts += 1
        if self._bad_starts >= _BAD_STARTS:
            self._retry_at = time.monotonic() + _PAUSE

    def _no_worker(self, call_id: str) -> bytes:
        if self._closing:
            text = "the runtime is shutting down"
            return messages.dump(Failure(call_id, "refused", "RuntimeClosing", text))
        failure = Failure(call_id, "exited", "WorkerExited", self._why, returncode=self._last_code)
        return messages.dump(failure)
