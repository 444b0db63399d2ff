"""Generator functions that tests call remotely."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

made: dict[str, int] = {}
"""How many items each of the generators has made."""

ended: dict[str, str] = {}
"""How each of them ended."""


def numbers(count: int, name: str = "", fail: bool = False) -> Iterator[int]:
    """Yield so many numbers from a thread, and perhaps raise."""
    try:
        for number in range(count):
            made[name] = number + 1
            yield number
        if fail:
            raise ValueError(f"after {count}")
        ended[name] = "end"
    except GeneratorExit:
        ended[name] = "closed"
        raise


async def anumbers(
    count: int, name: str = "", fail: bool = False, pause: float = 0
) -> AsyncIterator[int]:
    """Yield so many numbers from the loop, and perhaps raise."""
    try:
        for number in range(count):
            made[name] = number + 1
            if pause:
                await asyncio.sleep(pause)
            yield number
        if fail:
            raise ValueError(f"after {count}")
        ended[name] = "end"
    except (GeneratorExit, asyncio.CancelledError):
        ended[name] = "closed"
        raise


async def blobs(sizes: list[int]) -> AsyncIterator[bytes]:
    """Yield byte strings of these sizes."""
    for number, size in enumerate(sizes):
        yield bytes([number % 256]) * size


async def slow(seconds: float) -> AsyncIterator[str]:
    """Yield, wait, and yield again."""
    yield "first"
    await asyncio.sleep(seconds)
    yield "second"


def blocking(seconds: float) -> Iterator[str]:
    """Do the same in a thread."""
    yield "first"
    time.sleep(seconds)
    yield "second"


def how_many(name: str) -> int:
    """Tell how many items were made."""
    return made.get(name, 0)


def how(name: str) -> str:
    """Tell how one ended, or nothing while it goes on."""
    return ended.get(name, "")


runs: list[str] = []


async def once(name: str, seconds: float, size: int = 0) -> tuple[int, bytes]:
    """Take a while; tell how often there was such a call, and return something large."""
    runs.append(name)
    await asyncio.sleep(seconds)
    return runs.count(name), bytes(size)


def ran(name: str) -> int:
    """Tell how often there was such a call."""
    return runs.count(name)
