"""Run calls: coroutine functions on the loop, others in threads, each in a context of its own."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from dataclasses import dataclass
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from agentix.wire import messages
from agentix.wire.messages import Call, Cancel, Failure, Ready, Reply, Signal, Taken
from agentix.wire.protocol import MAX_INLINE
from agentix_runtime.channel import Channel
from agentix_runtime.parcel import Parcel, Payload, drop
from agentix_runtime.worker import forks, streams
from agentix_runtime.worker.answers import Answers, Result
from agentix_runtime.worker.failures import failure_of, refusal
from agentix_runtime.worker.interrupts import Gate, shielded
from agentix_runtime.worker.jobs import Job, begin
from agentix_runtime.worker.outcome import (
    ArgumentsError,
    Encoded,
    ItemError,
    Memory,
    encoded,
    end_of_stream,
    open_arguments,
    opened,
    packed,
)
from agentix_runtime.worker.targets import Target, TargetError, Targets
from agentix_runtime.worker.threads import Threads

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

_GRACE: Final = 0.5
"""How long calls may take to clean up once the server is gone."""

_PATIENCE: Final = 1.0
"""How long to wait for a server that does not keep up."""

_SOONEST: Final = 0.001
_SLOWEST: Final = 0.02
"""How long to wait before a thread that has not heard is told again."""

_HEARD: Final = (Call, Cancel, Taken, Signal, Reply)


class Worker:
    """Answers each call that arrives on the channel exactly once, when it has ended.

    It is answered by the thread or task that has its outcome; cancelling only tells that one.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._targets = Targets()
        self._threads = Threads()
        self._context = contextvars.copy_context()
        self._running: dict[str, Job] = {}
        self._ending: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()
        self.heard: Callable[[Signal | Reply, Payload | None], None] = lambda _, data: drop(data)
        """Called in the loop's thread with each event and reply that comes from the host."""
        self.channel = Channel(sock, self._receive, self._lost)
        self._answers = Answers(self.channel, self._threads, self._running)
        self.channel.send(messages.dump(Ready()))

    def say(self, message: Signal | Reply, data: bytes) -> bool:
        """Send something that is no call's answer; from any thread, amid a call's own code too.

        ``False`` if it had to be dropped, because the server has not kept up for a while.
        """
        return shielded(self._say, message, data)

    def _say(self, message: Signal | Reply, data: bytes) -> bool:
        try:
            payload = data if len(data) <= MAX_INLINE else Parcel.of([data])
        except OSError:
            return False
        return self.channel.send_now(messages.dump(message), payload, _PATIENCE)

    def _receive(self, head: bytes, payload: Payload | None) -> None:
        message = messages.load(head, _HEARD)
        if isinstance(message, Call):
            self._begin(message, opened(payload))
        elif isinstance(message, Cancel):
            if (job := self._running.get(message.id)) is not None:
                self._cancel(job)
        elif isinstance(message, Taken):
            job = self._running.get(message.id)
            if job is not None and job.window is not None:
                job.window.taken(message.number)
        elif isinstance(message, Signal | Reply):
            self.heard(message, payload)

    def _begin(self, call: Call, memory: Memory) -> None:
        job = self._running[call.id] = Job(call, memory, self._context.copy())
        try:
            target = self._targets.loaded(call.target)
            if target is not None and target.is_async:
                self._start(job, target)
            else:
                # Importing a module may take seconds and run anything: not here.
                job.gate = Gate()
                self._threads.run(functools.partial(self._work, job, target))
        except BaseException as error:  # looking a function up may run the module's own code
            self._answers.send(job, _failure(call, error))

    def _cancel(self, job: Job) -> None:
        """Tell a call to end, once; its answer comes when it has."""
        if job.cancelled:
            return
        job.end()
        if job.task is not None:
            job.task.cancel()
        elif job.gate is not None:
            self._tell(job, job.gate)
            if not job.begun:
                self._answers.send(job, _cancelled(job))

    def _tell(self, job: Job, gate: Gate, delay: float = _SOONEST) -> None:
        """Cancel a call in a thread, as often as it takes to be heard."""
        if not gate.tell() and self._running.get(job.call.id) is job:
            later = _SOONEST if gate.spared else min(2 * delay, _SLOWEST)
            self._loop.call_later(delay, self._tell, job, gate, later)

    def _lost(self, reason: str) -> None:
        """Without a server there is nobody to work for."""
        self._ending = self._loop.create_task(self._end())

    async def _end(self) -> None:
        try:
            for job in [*self._running.values()]:
                self._cancel(job)
            end = self._loop.time() + _GRACE
            while self._running and self._loop.time() < end:  # noqa: ASYNC110 - threads end them, too
                await asyncio.sleep(0.005)
        finally:
            self.ended.set()

    # In a thread

    def _work(self, job: Job, target: Target | None) -> None:
        """Answer a call, or pass it on to the loop."""
        job.begun = True
        try:
            result = job.context.run(self._run, job, target)
            if isinstance(result, tuple | Failure):
                self._answers.send(job, result)
            else:
                self._loop.call_soon_threadsafe(self._start, job, result.target, result.made)
        except BaseException as error:  # no memory is left, say
            self._answers.send(job, _failure(job.call, error))

    def _run(self, job: Job, target: Target | None) -> Result | _Passed:
        """Run a function, from its arguments to its packed result."""
        call = job.call
        try:
            target = target or self._targets.load(call.target)
            if job.cancelled:
                return _cancelled(job)
            if target.is_async:
                return _Passed(target)
            target.check(call.target, call.stream)
            args, kwargs = open_arguments(call, job.memory)
            job.memory = None
            gate = job.gate or Gate()
            value = gate.run(target.function, *args, **kwargs)
            del args, kwargs
            if forks.in_child():
                forks.leave(None)
            if call.stream:
                if hasattr(value, "__anext__"):
                    return _Passed(None, value)
                if not hasattr(value, "__next__"):
                    raise _no_stream(call, value)
                window = job.streams(streams.Window())
                streams.in_thread(
                    value, window, gate, functools.partial(self._answers.send_item, job)
                )
                return end_of_stream(call)
        except BaseException as error:  # whatever it is, the worker lives on
            if forks.in_child():
                forks.leave(error)
            return _failure(call, error)
        if type(value) is CoroutineType:
            return _Passed(None, value)
        result = encoded(call, value)
        return packed(call, result) if isinstance(result, Encoded) else result

    # On the loop

    def _start(self, job: Job, target: Target | None, made: Any = None) -> None:
        """Take the first step of a call on the loop: mostly it is the only one."""
        if job.cancelled:  # on the way here
            if type(made) is CoroutineType:
                made.close()
            self._answers.send(job, _cancelled(job))
            return
        task = begin(self._loop, self._finish(job, target, made), job.context)
        if task.done():
            self._ended(job, task)
        else:
            job.task = task
            task.add_done_callback(functools.partial(self._ended, job))

    def _ended(self, job: Job, task: asyncio.Task[None]) -> None:
        """See to it that a call is answered in any case."""
        if task.cancelled() or (error := task.exception()) is None:
            error = asyncio.CancelledError()
        if self._running.get(job.call.id) is job:
            self._answers.send(job, _failure(job.call, error))

    async def _finish(self, job: Job, target: Target | None, made: Any) -> None:
        """Call a function, or await what one has given, and answer with the outcome."""
        call = job.call
        result: Result | Encoded
        try:
            if target is not None:
                target.check(call.target, call.stream)
                args, kwargs = open_arguments(call, job.memory)
                job.memory = None
                made = target.function(*args, **kwargs)
                del args, kwargs
            if call.stream:
                if not hasattr(made, "__anext__"):
                    raise _no_stream(call, made)
                window = job.streams(streams.LoopWindow())
                await streams.on_loop(
                    made, window, functools.partial(self._answers.send_item_from_loop, job)
                )
                result = end_of_stream(call)
            else:
                value = await made
                if forks.in_child():
                    forks.leave(None)
                result = encoded(call, value)
        except BaseException as error:  # whatever it is, the worker lives on
            if forks.in_child():
                forks.leave(error)
            result = _failure(call, error)
        if not isinstance(result, Encoded):
            self._answers.send(job, result)
        else:
            self._answers.send_large(job, result)


@dataclass(frozen=True, slots=True)
class _Passed:
    """What :meth:`Worker._start` is to go on with: an async function, or what one has given."""

    target: Target | None
    made: Any = None


def _no_stream(call: Call, made: Any) -> TargetError:
    return TargetError(
        f"{call.target.replace('::', '.')} gave no iterator in the bundle, but a "
        f"{type(made).__name__}, and is a generator function where it was called: they are "
        "different versions; rebuild it with `agentix build` and deploy it again"
    )


def _cancelled(job: Job) -> Failure:
    return failure_of(job.call.id, asyncio.CancelledError())


def _failure(call: Call, error: BaseException) -> Failure:
    if isinstance(error, ArgumentsError):
        return refusal(call.id, "ArgumentsError", str(error), error.__cause__)
    if isinstance(error, TargetError):
        return refusal(call.id, "TargetError", str(error))
    if isinstance(error, ItemError):
        return error.failure
    return failure_of(call.id, error)
