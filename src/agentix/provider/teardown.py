"""Undoing things for certain: also while the caller is being cancelled, and never for ever."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from agentix.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

T = TypeVar("T")


async def carry_out(work: Coroutine[Any, Any, T], *, what: str, within: float) -> T:
    """Run *work* as :func:`to_the_end` does, but not for ever.

    Raises ProviderError saying that *what* took longer than *within* seconds, or what *work*
    raised. A cancellation carries a note about that instead.
    """

    async def bounded() -> T:
        try:
            async with asyncio.timeout(within) as bound:
                return await work
        except TimeoutError as error:
            if not bound.expired():
                raise
            message = f"{what} did not end within {within:g} s; something may be left behind"
            raise ProviderError(message) from error

    try:
        return await to_the_end(bounded())
    except asyncio.CancelledError as cancelled:
        if cancelled.__cause__ is not None:
            cancelled.add_note(f"then {cancelled.__cause__}")
        raise


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the value of *work*, which bounds itself; when cancelled, wait for its end first.

    What is about to be made can only be removed once it is made. The cancellation goes on then,
    with the failure of *work* as its ``__cause__``.
    """
    task = asyncio.create_task(work)
    # At its end, asyncio.run cancels every task it knows of; this one is waited for by its maker.
    asyncio._unregister_task(task)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})  # unlike awaiting the task, this leaves it running
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    raise cancelled from (None if task.cancelled() else task.exception())


@asynccontextmanager
async def undone_on_error(
    undo: Callable[[], Coroutine[Any, Any, None]], *, what: str, within: float
) -> AsyncIterator[None]:
    """Carry out *undo* when the body fails or is cancelled, and raise the body's error.

    When *undo* fails as well, that error carries a note about it.
    """
    try:
        yield
    except BaseException as first:
        try:
            await carry_out(undo(), what=what, within=within)
        except Exception as second:  # whatever it is, it must not hide the first
            first.add_note(f"then {second}")
        raise
