"""One timer for many timeouts, with the manners of ``asyncio.timeout``."""

from __future__ import annotations

import asyncio
import time

import pytest

from agentix.client.deadlines import Deadlines


async def sleep(deadlines: Deadlines, seconds: float) -> float:
    start = time.perf_counter()
    try:
        with deadlines():
            await asyncio.sleep(seconds)
    except TimeoutError:
        pass
    return time.perf_counter() - start


async def test_each_block_ends_at_its_own_time() -> None:
    deadlines = Deadlines(0.2)
    tasks = []
    for _ in range(5):
        tasks += [asyncio.create_task(sleep(deadlines, s)) for s in (0.05, 9)]
        await asyncio.sleep(0.05)
    for number, took in enumerate(await asyncio.gather(*tasks)):
        # The bound is far from both 0.2 and 9, for a machine that has other things to do.
        assert 0.19 < took < 5 if number % 2 else took < 5
    assert await sleep(deadlines, 9) < 5  # also after all others
    deadlines.close()


async def test_a_cancellation_from_outside_is_one() -> None:
    deadlines = Deadlines(5)
    task = asyncio.create_task(sleep(deadlines, 9))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deadlines.close()


async def test_a_cancellation_at_the_same_moment_wins() -> None:
    deadlines = Deadlines(0.05)
    task = asyncio.create_task(sleep(deadlines, 9))
    await asyncio.sleep(0)
    time.sleep(0.1)
    asyncio.get_running_loop().call_later(0, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    deadlines.close()


async def test_an_inner_and_an_outer_timeout_do_not_mix() -> None:
    deadlines = Deadlines(9)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await sleep(deadlines, 9)
    deadlines = Deadlines(0.05)
    async with asyncio.timeout(9):
        assert await sleep(deadlines, 9) < 1
        await asyncio.sleep(0)  # the task is not left cancelled


async def test_an_error_at_the_end_is_the_one_that_is_raised() -> None:
    deadlines = Deadlines(0.05)

    async def fail() -> None:
        with deadlines():
            try:
                await asyncio.sleep(9)
            finally:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_without_seconds_there_is_no_end() -> None:
    deadlines = Deadlines(None)
    assert await sleep(deadlines, 0.05) >= 0.05
    deadlines.close()
