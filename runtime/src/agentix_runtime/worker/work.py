"""Run calls: coroutine functions on the loop, others in threads, each in a context of its own."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

from agentix.wire import messages
from agentix.wire.messages import Call, Cancel, Ready
from agentix.wire.protocol import MAX_INLINE
from agentix_runtime.channel import Channel, Payload
from agentix_runtime.parcel import drop
from agentix_runtime.worker import forks
from agentix_runtime.worker.failures import failure_of, refusal
from agentix_runtime.worker.outcome import (
    ArgumentsError,
    Encoded,
    Memory,
    Outcome,
    failed,
    open_arguments,
    opened,
    unencodable,
)
from agentix_runtime.worker.targets import Target, TargetError, Targets
from agentix_runtime.worker.threads import Threads

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine

_GRACE: Final = 0.5
"""How long calls may take to clean up once the server is gone."""

_FEW: Final = 4
"""Up to so many calls at once, each is answered at once; the answers of more travel together."""

_GONE: Final = object()


class Worker:
    """Answers each call that arrives on the channel exactly once.

    Whoever takes a call out of ``_running`` answers it: the thread or task that has its outcome, or
    the loop when it is cancelled first. Taking is one step, so there is one answer.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._targets = Targets()
        self._threads = Threads()
        self._context = contextvars.copy_context()
        # A task, or None while the call is in a thread, which cannot be interrupted.
        self._running: dict[str, asyncio.Task[None] | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()
        self._channel = Channel(sock, self._receive, self._lost)
        self._channel.send(messages.dump(Ready()))

    def _receive(self, head: bytes, payload: Payload | None) -> None:
        message = messages.load(head, (Call, Cancel))
        if isinstance(message, Cancel):
            self._cancel(message.id)
        else:
            self._begin(message, opened(payload))

    def _begin(self, call: Call, memory: Memory) -> None:
        self._running[call.id] = None
        context = self._context.copy()
        try:
            target = self._targets.loaded(call.target)
            if target is not None and target.is_async:
                self._spawn(call, _call(call, memory, target), context)
            else:
                # Importing a module may take seconds and run anything: not here.
                self._threads.run(functools.partial(self._work, call, memory, target, context))
        except BaseException as error:  # looking a function up may run the module's own code
            self._answer(call.id, failed(_failure(call, error)))

    def _cancel(self, call_id: str) -> None:
        running = self._running.get(call_id, _GONE)
        if isinstance(running, asyncio.Task):
            running.cancel()
        elif running is None:
            self._answer(call_id, failed(failure_of(call_id, asyncio.CancelledError())))

    def _answer(self, call_id: str, outcome: Outcome) -> None:
        """Send a call's outcome, unless it has been answered."""
        if self._running.pop(call_id, _GONE) is _GONE:
            drop(outcome[1])
        else:
            self._channel.send(*outcome, alone=len(self._running) < _FEW)

    def _lost(self, reason: str) -> None:
        """Without a server there is nobody to work for."""
        task = self._loop.create_task(self._end())
        self._tasks.add(task)

    async def _end(self) -> None:
        tasks = [task for task in self._running.values() if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE)
        self.ended.set()

    # In a thread

    def _work(
        self, call: Call, memory: Memory, target: Target | None, context: contextvars.Context
    ) -> None:
        """Answer a call, or pass the coroutine on that turned out to be in it."""
        outcome = context.run(self._outcome, call, memory, target)
        if isinstance(outcome, tuple):
            self._answer(call.id, outcome)
        else:
            self._loop.call_soon_threadsafe(self._spawn, call, outcome, context)

    def _outcome(
        self, call: Call, memory: Memory, target: Target | None
    ) -> Outcome | Coroutine[Any, Any, Any]:
        """Run a function, from its arguments to its packed result."""
        try:
            target = target or self._targets.load(call.target)
        except BaseException as error:  # the module's own code may raise anything
            return failed(_failure(call, error))
        return _call(call, memory, target) if target.is_async else _run(call, memory, target)

    # On the loop

    def _spawn(
        self, call: Call, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context
    ) -> None:
        if call.id not in self._running:
            coroutine.close()  # cancelled on the way here
            return
        task = self._loop.create_task(self._finish(call, coroutine), context=context)
        self._running[call.id] = task
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._ended, call, coroutine))

    def _ended(
        self, call: Call, coroutine: Coroutine[Any, Any, Any], task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
        if call.id in self._running:
            # Cancelled before its first step, or after its last: it had no chance to answer.
            coroutine.close()
            self._answer(call.id, failed(failure_of(call.id, asyncio.CancelledError())))

    async def _finish(self, call: Call, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Await a function's value, and answer with it."""
        try:
            value = await coroutine
            if forks.in_child():
                forks.leave(None)
            result = _encode(call, value)
        except BaseException as error:  # whatever it is, the worker lives on
            if forks.in_child():
                forks.leave(error)
            result = failed(_failure(call, error))
        if isinstance(result, tuple):
            self._answer(call.id, result)
        elif self._running.pop(call.id, _GONE) is not _GONE:
            # From here on the call has ended: cancelling comes too late. Much is copied elsewhere.
            job = functools.partial(self._pack_and_send, call, result)
            try:
                self._threads.run(job)
            except RuntimeError:  # the sandbox may have no threads
                job()

    def _pack_and_send(self, call: Call, encoded: Encoded) -> None:
        self._channel.send(*_pack(call, encoded))


async def _call(call: Call, memory: Memory, target: Target) -> Any:
    args, kwargs = open_arguments(call, memory)
    return await target.function(*args, **kwargs)


def _run(call: Call, memory: Memory, target: Target) -> Outcome | Coroutine[Any, Any, Any]:
    """Call a function; one that only looks synchronous gives a coroutine, to be run on the loop."""
    try:
        args, kwargs = open_arguments(call, memory)
        value = target.function(*args, **kwargs)
    except BaseException as error:  # whatever it is, the worker lives on
        if forks.in_child():
            forks.leave(error)
        return failed(_failure(call, error))
    if forks.in_child():
        forks.leave(None)
    if inspect.iscoroutine(value):
        return value
    result = _encode(call, value)
    return result if isinstance(result, tuple) else _pack(call, result)


def _failure(call: Call, error: BaseException) -> messages.Failure:
    if isinstance(error, ArgumentsError):
        return refusal(call.id, "ArgumentsError", str(error), error.__cause__)
    if isinstance(error, TargetError):
        return refusal(call.id, "TargetError", str(error))
    return failure_of(call.id, error)


def _encode(call: Call, value: Any) -> Outcome | Encoded:
    """Encode a result; a small one is an outcome already."""
    try:
        encoded = Encoded(call, value)
    except BaseException as error:  # it runs the code of the user's objects
        return unencodable(call, error)
    return _pack(call, encoded) if encoded.size <= MAX_INLINE else encoded


def _pack(call: Call, encoded: Encoded) -> Outcome:
    try:
        return encoded.pack()
    except Exception as error:  # no memory, no descriptors
        return unencodable(call, error)
