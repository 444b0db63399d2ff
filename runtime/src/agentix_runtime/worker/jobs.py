"""A call under way in the worker, and how the first step of a coroutine is taken without delay."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from agentix.wire.messages import Call
    from agentix_runtime.worker.interrupts import Gate
    from agentix_runtime.worker.outcome import Memory
    from agentix_runtime.worker.streams import Window

W = TypeVar("W", bound="Window")


current: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("agentix.call", default="")
"""The id of the call that this code belongs to."""


class Job:
    """A call, from its arrival to its answer."""

    __slots__ = ("begun", "call", "cancelled", "context", "gate", "memory", "task", "window")

    def __init__(self, call: Call, memory: Memory, context: contextvars.Context) -> None:
        self.call = call
        self.memory = memory
        self.context = context
        context.run(current.set, call.id)
        self.cancelled = False
        self.begun = False
        self.task: asyncio.Task[None] | None = None
        """While it is on the loop."""
        self.gate: Gate | None = None
        """Once it has been given to a thread."""
        self.window: Window | None = None
        """Once it is known to be a stream."""

    def end(self) -> None:
        """Tell whoever makes items that none is wanted any more."""
        self.cancelled = True
        if self.window is not None:
            self.window.close()

    def streams(self, window: W) -> W:
        """Know that the call is a stream; it may have been cancelled by now."""
        self.window = window
        if self.cancelled:
            window.close()
        return window


if sys.version_info >= (3, 12):

    def begin(
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, None],
        context: contextvars.Context,
    ) -> asyncio.Task[None]:
        """Make a task whose first step is taken now, not in the loop's next turn."""
        return asyncio.Task(coroutine, loop=loop, context=context, eager_start=True)

else:

    def begin(
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, None],
        context: contextvars.Context,
    ) -> asyncio.Task[None]:
        """Make a task whose first step is taken now, not in the loop's next turn.

        A task of Python 3.11 asks its loop to take that step; here it asks us.
        """
        if asyncio.current_task(loop) is not None:  # somebody runs the loop inside of itself
            return loop.create_task(coroutine, context=context)
        first: list[Callable[[], object]] = []
        ask = loop.call_soon

        def asked(step: Any, *args: Any, context: Any = None) -> Any:
            if context is not own or args:
                return ask(step, *args, context=context)
            first.append(step)
            return None

        own = context
        loop.call_soon = asked  # type: ignore[method-assign,assignment]
        try:
            task = asyncio.Task(coroutine, loop=loop, context=context)
        finally:
            del loop.call_soon
        context.run(first.pop())
        return task
