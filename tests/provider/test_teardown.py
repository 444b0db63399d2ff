from __future__ import annotations

import asyncio

import pytest

from agentix.errors import ProviderError
from agentix.provider.teardown import carry_out, to_the_end, undone_on_error


async def test_the_work_is_finished_although_the_caller_is_cancelled_again_and_again() -> None:
    release = asyncio.Event()
    done = []

    async def work() -> None:
        await release.wait()
        done.append(True)

    task = asyncio.create_task(carry_out(work(), what="working", within=10))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done


def test_the_work_is_finished_although_the_loop_is_about_to_close() -> None:
    done = []

    async def work() -> None:
        for _ in range(5):
            await asyncio.sleep(0.01)
        done.append(True)

    async def main() -> None:
        task = asyncio.create_task(carry_out(to_the_end(work()), what="working", within=10))
        await asyncio.sleep(0.01)
        assert not task.done()

    asyncio.run(main())
    assert done


async def test_the_value_of_the_work_is_returned() -> None:
    async def work() -> int:
        return 7

    assert await carry_out(work(), what="working", within=10) == 7
    assert await to_the_end(work()) == 7


async def test_a_timeout_of_the_works_own_is_not_taken_for_the_bound() -> None:
    async def work() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await carry_out(work(), what="working", within=10)


async def test_work_that_never_ends_is_given_up_with_a_clear_error() -> None:
    with pytest.raises(ProviderError, match=r"^waiting did not end within 0\.01 s"):
        await carry_out(asyncio.Event().wait(), what="waiting", within=0.01)


async def test_the_first_error_is_raised_and_tells_of_the_second() -> None:
    async def undo() -> None:
        raise ProviderError("it stays behind")

    with pytest.raises(ValueError, match="first") as caught:
        async with undone_on_error(undo, what="undoing", within=1):
            raise ValueError("first")
    assert caught.value.__notes__ == ["then it stays behind"]


async def test_nothing_is_undone_after_success() -> None:
    async def undo() -> None:
        raise AssertionError("undone")

    async with undone_on_error(undo, what="undoing", within=1):
        pass


async def test_a_cancelled_body_is_undone_and_stays_cancelled() -> None:
    undone = asyncio.Event()

    async def undo() -> None:
        await asyncio.sleep(0)
        undone.set()

    async def body() -> None:
        async with undone_on_error(undo, what="undoing", within=1):
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone.is_set()
