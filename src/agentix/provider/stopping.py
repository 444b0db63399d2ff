"""Blocking work that may take minutes, and ends soon after nobody wants it any more."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class StoppedError(Exception):
    """Work was stopped by whoever had asked for it, who looks for no answer any more."""


class Stop:
    """Whether work is to end: its thread calls :meth:`check` every now and then."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Ask the work to end."""
        self._event.set()

    def check(self) -> None:
        """Raise StoppedError when the work is to end."""
        if self._event.is_set():
            raise StoppedError

    def sleep(self, seconds: float) -> None:
        """Wait for so long; StoppedError as soon as the work is to end."""
        if self._event.wait(seconds):
            raise StoppedError


NEVER: Final = Stop()


async def stoppable(work: Callable[[Stop], T], *, name: str) -> T:
    """Return what *work* returns, run in a thread of its own.

    When cancelled, it is told to stop, and its end is waited for: it may have things to tidy up.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    stop = Stop()

    def settle(value: T | None, error: BaseException | None) -> None:
        if error is None:
            done.set_result(value)  # type: ignore[arg-type]  # it is a T, as there is no error
        else:
            done.set_exception(error)

    def body() -> None:
        value, error = None, None
        try:
            value = work(stop)
        except BaseException as caught:  # it belongs to whoever awaits
            error = caught
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, value, error)

    # A daemon: a program that ends must not wait for a download. Its locks end with it.
    threading.Thread(target=body, name=name, daemon=True).start()
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait({done})
        except asyncio.CancelledError as error:
            cancelled = error
            stop.set()
    if cancelled is None:
        return done.result()
    done.exception()  # looked at
    raise cancelled
