"""Functions that tests call remotely."""

from __future__ import annotations

import asyncio
import time
from typing import Any


def noop(value: Any = None) -> Any:
    """Return the argument."""
    return value


async def anoop(value: Any = None) -> Any:
    """Return the argument, on the loop."""
    return value


async def asleep(seconds: float) -> None:
    """Wait on the loop."""
    await asyncio.sleep(seconds)


def sleep(seconds: float) -> None:
    """Block a thread."""
    time.sleep(seconds)


def blob(size: int) -> bytes:
    """Make a large result."""
    return bytes(size)


def length(data: bytes) -> int:
    """Take a large argument."""
    return len(data)
