"""Answers on their way out: a call's outcome, once, and the items of its stream."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from agentix.wire import messages
from agentix.wire.messages import Call, Failure
from agentix_runtime.parcel import Parcel, drop
from agentix_runtime.worker import forks
from agentix_runtime.worker.outcome import Encoded, ItemError, Outcome, encoded, packed

if TYPE_CHECKING:
    from agentix_runtime.channel import Channel
    from agentix_runtime.worker.jobs import Job
    from agentix_runtime.worker.threads import Threads

Result: TypeAlias = Outcome | Failure

_FEW: Final = 4
"""Up to so many calls at once, each is answered at once; the answers of more travel together."""


class Answers:
    """Sends what calls have come to, from any thread.

    Whoever takes a call out of *running* answers it: the thread or task that has its outcome.
    Taking is one step, so there is one answer.
    """

    def __init__(self, channel: Channel, threads: Threads, running: dict[str, Job]) -> None:
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._threads = threads
        self._running = running

    def send(self, job: Job, result: Result) -> None:
        """Send a call's outcome, unless it has been answered."""
        if forks.in_child():
            forks.leave(None)
        outcome = (messages.dump(result), b"") if isinstance(result, Failure) else result
        if self._running.pop(job.call.id, None) is None:
            drop(outcome[1])
            return
        _flush()
        alone = len(self._running) < _FEW and not self._channel.gathering
        self._channel.send(*outcome, alone=alone)

    def send_large(self, job: Job, made: Encoded) -> None:
        """Send the outcome of a call of the loop, copying it elsewhere: it is large."""
        if self._running.pop(job.call.id, None) is None:
            return
        # From here on the call has ended: cancelling comes too late.
        _flush()
        copy = functools.partial(self._pack_and_send, job.call, made)
        try:
            self._threads.run(copy)
        except RuntimeError:  # the sandbox may have no threads
            copy()

    def _pack_and_send(self, call: Call, made: Encoded) -> None:
        result = packed(call, made)
        outcome = (messages.dump(result), b"") if isinstance(result, Failure) else result
        self._channel.send(*outcome)

    def send_item(self, job: Job, value: Any) -> None:
        """Send an item of a stream, from its thread."""
        ready = encoded(job.call, value, _next(job))
        self._send_item(job, packed(job.call, ready) if isinstance(ready, Encoded) else ready)

    def _send_item(self, job: Job, ready: Result) -> None:
        if isinstance(ready, Failure):
            raise ItemError(ready)
        if job.window is not None:
            payload = ready[1]
            job.window.add(payload.size if isinstance(payload, Parcel) else len(payload))
        _flush()
        self._channel.send(*ready)

    async def send_item_from_loop(self, job: Job, value: Any) -> None:
        """Send an item of a stream that is made on the loop."""
        ready = encoded(job.call, value, _next(job))
        if isinstance(ready, Encoded):
            ready = await self._packed(job.call, ready)
        self._send_item(job, ready)

    async def _packed(self, call: Call, made: Encoded) -> Result:
        """Pack in a thread what would hold up the loop."""
        done: asyncio.Future[Result] = self._loop.create_future()

        def settle(result: Result) -> None:
            if not done.cancelled():
                done.set_result(result)
            else:
                _let_go(result)

        def pack() -> None:
            result = packed(call, made)
            try:
                self._loop.call_soon_threadsafe(settle, result)
            except RuntimeError:  # the worker has ended meanwhile, and its loop is closed
                _let_go(result)

        self._threads.run(pack)
        try:
            return await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled():  # cancelled just when it was there
                _let_go(done.result())
            raise


def _let_go(result: Result) -> None:
    """Close the memory of what will not be sent."""
    if not isinstance(result, Failure):
        drop(result[1])


def _next(job: Job) -> int:
    return 1 if job.window is None else job.window.made + 1


def _flush() -> None:
    """Let go of what was printed, before the answer that it came before."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # somebody may have put anything there
        _flush_each()


def _flush_each() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
