"""Threads for synchronous functions: as many as there are calls at once, reused while warm.

The one that worked last works next. A pool of a fixed size would let calls that only wait hold up
all others, so this one grows; past its bound, calls wait their turn.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_MOST: Final = 1024
_IDLE: Final = 60.0

_Job: TypeAlias = tuple["Callable[[], Any]", "asyncio.Future[Any]"]


class Threads:
    """Runs functions in threads for one event loop; only that loop's thread may call ``run``.

    ``discard`` is given the results that nobody waits for any more.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, discard: Callable[[Any], None]) -> None:
        self._loop = loop
        self._discard = discard
        self._idle: list[queue.SimpleQueue[_Job]] = []
        self._waiting: deque[_Job] = deque()
        self._count = 0

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run a function in a thread. It must not raise: what it returns is the result."""
        future: asyncio.Future[Any] = self._loop.create_future()
        job = (function, future)
        try:
            self._idle.pop().put(job)
        except IndexError:
            self._grow(job)
        return future

    def _grow(self, job: _Job) -> None:
        if self._count < _MOST:
            inbox: queue.SimpleQueue[_Job] = queue.SimpleQueue()
            inbox.put(job)
            thread = threading.Thread(
                target=self._work, args=(inbox,), name=f"agentix-call-{self._count}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # the sandbox may have no more threads
                if self._count == 0:
                    raise
            else:
                self._count += 1
                return
        self._waiting.append(job)

    def _work(self, inbox: queue.SimpleQueue[_Job]) -> None:
        while True:
            try:
                function, future = inbox.get(timeout=_IDLE)
            except queue.Empty:
                with contextlib.suppress(ValueError):
                    self._idle.remove(inbox)
                    self._count -= 1
                    return
                continue  # a job is on its way
            while True:
                result = function()
                self._loop.call_soon_threadsafe(self._deliver, future, result)
                # Hold nothing of the last call while waiting for the next one.
                del function, future, result
                try:
                    function, future = self._waiting.popleft()
                except IndexError:
                    break
            self._idle.append(inbox)

    def _deliver(self, future: asyncio.Future[Any], result: Any) -> None:
        if future.done():
            self._discard(result)
        else:
            future.set_result(result)
