"""Waiting for what happens outside of a test, which nothing announces: bounded, and said for what.

What can announce itself (an event, an end of file, a process to wait for) is waited for as such.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAUSE = 0.01


def eventually(happened: Callable[[], object], what: str, *, within: float = 60) -> None:
    """Return once *happened* says so; fail after *within* seconds without *what*."""
    for pause in _pauses(happened, what, within):
        time.sleep(pause)


async def eventually_async(
    happened: Callable[[], object], what: str, *, within: float = 60
) -> None:
    """Do the same, and leave the loop to others meanwhile."""
    for pause in _pauses(happened, what, within):
        await asyncio.sleep(pause)


def still(value: Callable[[], object], seconds: float = 0.5) -> Callable[[], bool]:
    """Make what says whether a value has stood still for so long; ask it again and again."""
    since, last = time.monotonic(), value()

    def stands() -> bool:
        nonlocal since, last
        if (now := value()) != last:
            since, last = time.monotonic(), now
        return time.monotonic() - since >= seconds

    return stands


def _pauses(happened: Callable[[], object], what: str, within: float) -> Iterator[float]:
    end = time.monotonic() + within
    while not happened():
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        yield PAUSE
