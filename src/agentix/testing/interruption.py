"""Cancelling at one exact point: the k-th time that a coroutine has to wait."""

from __future__ import annotations

import asyncio
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

T = TypeVar("T")
How = Literal["as it begins to wait", "as its wait is over", "twice"]
WAYS: tuple[How, ...] = ("as it begins to wait", "as its wait is over", "twice")


@dataclass(slots=True)
class Interruption:
    """Cancel at suspension number ``at``, counted from one; ``seen`` says how many there were.

    Cancelled *as it begins to wait*, what it waits for has hardly been begun; *as its wait is
    over*, it is done, and its result is lost. *Twice*: at the next suspension once more, as
    somebody does who has no patience.
    """

    at: int
    how: How = "as it begins to wait"
    seen: int = 0

    @property
    def reached(self) -> bool:
        """Whether there were as many suspensions, and so a cancellation."""
        return self.seen >= self.at

    def __str__(self) -> str:
        """Say when the cancellation was."""
        return f"cancelled at suspension {self.at} {self.how}"

    def suspended(self, task: asyncio.Task[Any], waits_for: Any) -> None:
        """Note one more suspension of *task*, and cancel if it is the one."""
        self.seen += 1
        if self.seen != self.at and not (self.how == "twice" and self.seen == self.at + 1):
            return
        if self.how == "as its wait is over" and waits_for is not None:
            # The task itself has not asked to be told yet, so this is called first.
            waits_for.add_done_callback(lambda _: task.cancel())
        else:
            task.cancel()


@types.coroutine
def interrupted(work: Coroutine[Any, Any, T], interruption: Interruption) -> Generator[Any, Any, T]:
    """Await *work*, and cancel the current task where *interruption* says."""
    task = asyncio.current_task()
    assert task is not None
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            waits_for = work.send(answer) if error is None else work.throw(error)
        except StopIteration as end:
            value: T = end.value
            return value
        interruption.suspended(task, waits_for)
        answer, error = None, None
        try:
            answer = yield waits_for
        except GeneratorExit:
            work.close()
            raise
        except BaseException as thrown:
            error = thrown
