"""Undoing things for certain: also while the caller is being cancelled, and never for ever."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from agentix.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine


async def carry_out(work: Coroutine[Any, Any, None], *, what: str, within: float) -> None:
    """Run *work* to its end although the caller is cancelled meanwhile; then let that go on.

    Raises ProviderError saying that *what* took longer than *within* seconds, or what *work*
    raised. A cancellation comes first: the failure of *work* is then its ``__cause__``.
    """

    async def bounded() -> None:
        try:
            async with asyncio.timeout(within):
                await work
        except TimeoutError as error:
            message = f"{what} did not end within {within:g} s; something may be left behind"
            raise ProviderError(message) from error

    task = asyncio.create_task(bounded())
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})  # unlike awaiting the task, this leaves it running
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        task.result()
        return
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
