"""Blocking calls, off the event loop: one that a cancellation waits for, one that it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from agentix.provider.kit import to_the_end

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


async def finished(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run *work* in a thread; when cancelled, wait for its end first."""
    return await to_the_end(asyncio.to_thread(work, *args, **kwargs))


async def abandonable(work: Callable[[], None], *, name: str) -> None:
    """Run *work* in a thread of its own, which nobody waits for after a cancellation.

    For what may take minutes and leaves nothing that needs removing.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def body() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as caught:  # it belongs to whoever awaits
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=body, name=name, daemon=True).start()
    await done
