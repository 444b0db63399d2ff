"""Sandboxes that are asked for and not wanted any more, at any moment of their making."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from agentix.testing.census import MARK

if TYPE_CHECKING:
    from agentix.testing.census import Place
    from agentix.testing.subject import Subject

_AT_ONCE = 4


async def regrets(subject: Subject, place: Place, rounds: int, seed: int) -> int:
    """Create and cancel *rounds* times, each at a random moment of the time that creating takes.

    Returns how many were cancelled in time. What was ready before is deleted, as its owner would.
    """
    moments = random.Random(seed)
    provider = subject.provider()

    async def whole() -> None:
        sandbox = await provider.create(subject.config(env={MARK: place.mark}))
        await sandbox.aclose()
        await provider.delete(sandbox.sandbox_id)

    begun = time.monotonic()
    await asyncio.gather(*(whole() for _ in range(_AT_ONCE)))
    longest = time.monotonic() - begun
    gate = asyncio.Semaphore(_AT_ONCE)
    cancelled = 0

    async def one(after: float) -> None:
        nonlocal cancelled
        async with gate:
            making = asyncio.create_task(provider.create(subject.config(env={MARK: place.mark})))
            await asyncio.wait({making}, timeout=after)
            making.cancel()
            with suppress(asyncio.CancelledError):
                sandbox = await making
                await sandbox.aclose()
                await provider.delete(sandbox.sandbox_id)
                return
            cancelled += 1

    await asyncio.gather(*(one(moments.uniform(0, longest)) for _ in range(rounds)))
    return cancelled
