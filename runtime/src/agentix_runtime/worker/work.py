"""Run calls: coroutine functions on the loop, others in threads, each in a context of its own."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

from agentix.wire import messages
from agentix.wire.messages import Call, Cancel, Ready
from agentix.wire.protocol import MAX_INLINE, PROTOCOL
from agentix_runtime.channel import Channel, Payload
from agentix_runtime.worker import forks
from agentix_runtime.worker.failures import failure_of, refusal
from agentix_runtime.worker.outcome import (
    ArgumentsError,
    Encoded,
    Memory,
    Outcome,
    discard,
    failed,
    open_arguments,
    opened,
    unencodable,
)
from agentix_runtime.worker.targets import Target, TargetError, Targets
from agentix_runtime.worker.threads import Threads

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable

_GRACE: Final = 0.5
"""How long calls may take to clean up once the server is gone."""


class Worker:
    """Answers each call that arrives on the channel exactly once."""

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._targets = Targets()
        self._threads = Threads(self._loop, discard)
        self._context = contextvars.copy_context()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()
        self._channel = Channel(sock, self._receive, self._lost)
        self._channel.send(messages.dump(Ready(PROTOCOL)))

    def _receive(self, head: bytes, payload: Payload | None) -> None:
        message = messages.load(head, Call, Cancel)
        if isinstance(message, Cancel):
            if (task := self._running.get(message.id)) is not None:
                task.cancel()
            return
        self._running[message.id] = self._loop.create_task(
            self._answer(message, opened(payload)), context=self._context.copy()
        )

    def _lost(self, reason: str) -> None:
        """Without a server there is nobody to work for."""
        self._ending.add(self._loop.create_task(self._end(), context=self._context.copy()))

    async def _end(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE)
        self.ended.set()

    async def _answer(self, call: Call, memory: Memory) -> None:
        try:
            outcome = await self._outcome(call, memory)
        except BaseException as error:
            outcome = failed(failure_of(call.id, error))
        # From here on it has ended: cancelling comes too late.
        del self._running[call.id]
        await self._channel.room()
        self._channel.send(*outcome)

    async def _outcome(self, call: Call, memory: Memory) -> Outcome:
        try:
            target = self._targets.loaded(call.target)
            if target is None:
                # Importing a module may take seconds, and run anything.
                target = await self._threads.run(functools.partial(self._load, call.target))
                if not isinstance(target, Target):
                    raise target
        except TargetError as exc:
            return failed(refusal(call.id, "TargetError", str(exc)))
        if target.is_async:
            return await self._run_here(call, memory, target)
        run = functools.partial(_run, call, memory, target)
        ran = await self._threads.run(functools.partial(contextvars.copy_context().run, run))
        # A decorated coroutine function may look like an ordinary one until it is called.
        return ran if isinstance(ran, tuple) else await self._finish(call, ran)

    def _load(self, name: str) -> Target | BaseException:
        try:
            return self._targets.load(name)
        except BaseException as exc:
            return exc

    async def _run_here(self, call: Call, memory: Memory, target: Target) -> Outcome:
        try:
            args, kwargs = open_arguments(call, memory)
        except ArgumentsError as exc:
            return failed(refusal(call.id, "ArgumentsError", str(exc), exc.__cause__))
        return await self._finish(call, _awaited(target, args, kwargs))

    async def _finish(self, call: Call, running: Awaitable[Any]) -> Outcome:
        try:
            value = await running
        except BaseException as error:
            if forks.in_child():
                forks.leave(error)
            return failed(failure_of(call.id, error))
        if forks.in_child():
            forks.leave(None)
        try:
            encoded = Encoded(call, value)
            if encoded.size <= MAX_INLINE:
                return encoded.pack()
        except BaseException as error:
            return unencodable(call, error)
        # Copying much would hold up the loop.
        outcome: Outcome = await self._threads.run(functools.partial(_pack, call, encoded))
        return outcome


async def _awaited(target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return await target.function(*args, **kwargs)


def _run(call: Call, memory: Memory, target: Target) -> Outcome | Awaitable[Any]:
    """Run a function in a thread, from its arguments to its packed result."""
    try:
        args, kwargs = open_arguments(call, memory)
    except ArgumentsError as exc:
        return failed(refusal(call.id, "ArgumentsError", str(exc), exc.__cause__))
    try:
        value = target.function(*args, **kwargs)
    except BaseException as error:
        if forks.in_child():
            forks.leave(error)
        return failed(failure_of(call.id, error))
    if forks.in_child():
        forks.leave(None)
    if inspect.iscoroutine(value):
        return value
    try:
        return Encoded(call, value).pack()
    except BaseException as error:
        return unencodable(call, error)


def _pack(call: Call, encoded: Encoded) -> Outcome:
    try:
        return encoded.pack()
    except BaseException as error:
        return unencodable(call, error)
