"""Attempts to reach somebody end in time, and early where they are broken off."""

from __future__ import annotations

import asyncio
import time

import pytest

from agentix.client.attempt import Attempt


async def test_what_takes_too_long_is_ended() -> None:
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        async with Attempt(0.5) as attempt:
            await asyncio.Event().wait()
    assert 0.4 < time.monotonic() - start < 5
    assert not attempt.broken_off


async def test_what_has_ended_in_time_is_left_alone() -> None:
    async with Attempt(0.1):
        pass
    await asyncio.sleep(0.4)  # the task that waits here is not cancelled


async def test_it_may_be_given_more_time() -> None:
    async with Attempt(0.2) as attempt:
        attempt.allow(60)
        await asyncio.sleep(0.6)


async def test_it_ends_at_once_where_it_is_broken_off_however_often() -> None:
    start = time.monotonic()
    attempt = Attempt(60)
    loop = asyncio.get_running_loop()
    for _ in range(3):
        loop.call_soon(attempt.break_off)
    with pytest.raises(TimeoutError):
        async with attempt:
            await asyncio.Event().wait()
    assert attempt.broken_off
    assert time.monotonic() - start < 5


async def test_a_cancellation_is_one_also_where_it_is_broken_off_with_it() -> None:
    async def waits(attempt: Attempt) -> None:
        async with attempt:
            began.set()
            await asyncio.Event().wait()

    began = asyncio.Event()
    attempt = Attempt(60)
    task = asyncio.create_task(waits(attempt))
    await began.wait()
    attempt.break_off()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_time_in_which_the_loop_was_busy_is_not_counted() -> None:
    asyncio.get_running_loop().call_soon(time.sleep, 1.5)
    async with Attempt(1):
        await asyncio.sleep(0.1)
