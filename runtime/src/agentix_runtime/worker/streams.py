"""Streams: what a generator yields goes out as the caller takes it, a bounded way ahead of it.

A generator runs and is closed in one thread or task, in the context of its call.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from agentix.wire.protocol import WINDOW, WINDOW_BYTES
from agentix_runtime.worker import forks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentix_runtime.worker.interrupts import Gate

_END: Final = object()


class Window:
    """What has been made of a stream and not been taken yet; waited for in a thread."""

    def __init__(self) -> None:
        self.made = 0
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._closed = False
        self._change = threading.Condition(threading.Lock())

    def add(self, size: int) -> None:
        """Count an item as made."""
        with self._change:
            self.made += 1
            self._sizes.append(size)
            self._bytes += size

    def taken(self, number: int) -> None:
        """Count the items up to a number as taken."""
        with self._change:
            while self._sizes and self.made - len(self._sizes) < number:
                self._bytes -= self._sizes.popleft()
            self._changed()

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._change:
            self._closed = True
            self._changed()

    def wait(self) -> bool:
        """Wait until one more item may be made; ``False`` if none is wanted any more."""
        with self._change:
            while self._full and not self._closed:
                self._change.wait()
        return not self._closed

    @property
    def _full(self) -> bool:
        return len(self._sizes) >= WINDOW or self._bytes >= WINDOW_BYTES

    def _changed(self) -> None:
        self._change.notify()


class LoopWindow(Window):
    """The same, waited for in a task."""

    def __init__(self) -> None:
        super().__init__()
        self._event = asyncio.Event()

    async def ready(self) -> bool:
        """Wait until one more item may be made; ``False`` if none is wanted any more."""
        while self._full and not self._closed:
            self._event.clear()
            await self._event.wait()
        return not self._closed

    def _changed(self) -> None:
        self._event.set()


def in_thread(made: Any, window: Window, gate: Gate, send: Callable[[Any], None]) -> None:
    """Send what a generator yields; close it where that comes to an end early."""
    try:
        while window.wait():
            value = gate.run(next, made, _END)
            if forks.in_child():
                forks.leave(None)
            if value is _END:
                return
            send(value)
        raise asyncio.CancelledError
    finally:
        if (close := getattr(made, "close", None)) is not None:
            close()


async def on_loop(made: Any, window: LoopWindow, send: Callable[[Any], Awaitable[None]]) -> None:
    """Do the same with an asynchronous generator."""
    try:
        while await window.ready():
            value = await anext(made, _END)
            if forks.in_child():
                forks.leave(None)
            if value is _END:
                return
            await send(value)
        raise asyncio.CancelledError
    finally:
        if (close := getattr(made, "aclose", None)) is not None:
            await close()
