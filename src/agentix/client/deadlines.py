"""The timeouts of one client's calls: all are equally long, so one timer serves for them all.

A timer for each call, as ``asyncio.timeout`` has it, costs a tenth of a short call.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class Deadlines:
    """Makes deadlines that are so many seconds away; ``None`` for none at all."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        # In the order in which they come.
        self._open: dict[Deadline, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self) -> Deadline:
        """Make one, to be entered by ``with``."""
        return Deadline(self)

    def close(self) -> None:
        """Do without the timer; nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _add(self, deadline: Deadline) -> None:
        if self.seconds is None:
            return
        loop = asyncio.get_running_loop()
        when = self._open[deadline] = loop.time() + self.seconds
        if self._timer is None:
            self._timer = loop.call_at(when, self._pass)

    def _discard(self, deadline: Deadline) -> None:
        self._open.pop(deadline, None)

    def _pass(self) -> None:
        """End those that are over, and wait for the next one."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        for deadline, when in list(self._open.items()):
            if when > now:
                self._timer = loop.call_at(when, self._pass)
                return
            del self._open[deadline]
            deadline._end()


class Deadline:
    """Bounds a block of code: raises TimeoutError at its end if that has taken too long."""

    __slots__ = ("_all", "_before", "_over", "_task")

    _task: asyncio.Task[object]

    def __init__(self, deadlines: Deadlines) -> None:
        self._all = deadlines
        self._over = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("calls are awaited in tasks")
        self._task = task
        self._before = task.cancelling()
        self._all._add(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._all._discard(self)
        if self._over and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            # Nobody else has cancelled it.
            raise TimeoutError from error

    def _end(self) -> None:
        self._over = True
        self._task.cancel()
