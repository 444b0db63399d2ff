"""The items of a stream: by number, so many at once, and no more than are wanted."""

from __future__ import annotations

import asyncio

import pytest
from local_runtime.stage import Stage, memory, stage, told

from agentix.wire.messages import (
    Await,
    Cancel,
    Failure,
    Item,
    Message,
    Next,
    Pending,
    Taken,
    Value,
)
from agentix.wire.protocol import MAX_INLINE, WINDOW

BIG = MAX_INLINE + 1
END = Value("s-1", "values", "", (0,))


def numbers(found: list[Message]) -> list[int]:
    return [message.number for message in found if isinstance(message, Item)]


async def after(it: Stage, number: int, wait: int = 60_000) -> list[Message]:
    return told(await asyncio.wait_for(it.ask(Next("s-1", number, wait)), 10))


async def test_items_come_in_order_each_until_the_next_are_asked_for() -> None:
    async with stage() as it:
        assert told(await (await it.begin("s-1", stream=True))) == [Pending("s-1")]
        for number in (1, 2, 3):
            it.item("s-1", number)
        assert numbers(await after(it, 0)) == [1, 2, 3]
        assert numbers(await after(it, 0)) == [1, 2, 3]  # it was lost, and is asked for again
        assert numbers(await after(it, 1)) == [2, 3]
        assert await it.heard.get() == Taken("s-1", 1)
        it.item("s-1", 4)
        assert numbers(await after(it, 1)) == [2, 3, 4]
        assert numbers(await after(it, 4, wait=0)) == []
        assert await it.heard.get() == Taken("s-1", 4)
        (lost,) = await after(it, 2)
        assert isinstance(lost, Failure)
        assert lost.kind == "forgotten"
        (early,) = await after(it, 5)
        assert isinstance(early, Failure)
        assert early.kind == "refused"


async def test_a_request_waits_for_an_item_and_is_told_if_none_comes() -> None:
    async with stage() as it:
        told(await (await it.begin("s-1", stream=True)))
        assert await after(it, 0, wait=20) == [Pending("s-1")]
        waiting = it.ask(Next("s-1", 0, 60_000))
        again = it.ask(Next("s-1", 0, 60_000))
        await asyncio.sleep(0)
        it.item("s-1", 1)
        assert numbers(told(await waiting)) == numbers(told(await again)) == [1]


@pytest.mark.parametrize("end", [END, Failure("s-1", "raised", "E", "")])
async def test_the_end_comes_with_the_last_items(end: Message) -> None:
    async with stage() as it:
        told(await (await it.begin("s-1", stream=True)))
        it.item("s-1", 1)
        it.item("s-1", 2)
        it.say(end)
        for number in (0, 1):
            found = await after(it, number)
            assert numbers(found) == [1, 2][number:]
            assert found[-1] == end
        assert await after(it, 2) == [end]
        assert await after(it, 2) == [end]
        assert told(await it.ask(Await("s-1", 0))) == [Pending("s-1")]
        it.calls.arrived("s-1")
        (gone,) = await after(it, 2)
        assert isinstance(gone, Failure)
        assert gone.kind == "forgotten"


async def test_large_items_travel_alone_and_small_ones_up_to_a_bound() -> None:
    async with stage() as it:
        told(await (await it.begin("s-1", stream=True)))
        sizes = [10, BIG, 20, 200_000, 200_000, 200_000, 200_000, 200_000, 200_000]
        for number, size in enumerate(sizes, 1):
            it.item("s-1", number, size)
        it.say(Value("s-1", "values", "", (0,)))
        assert numbers(await after(it, 0)) == [1]
        assert numbers(await after(it, 1)) == [2]
        assert numbers(await after(it, 2)) == [3, 4, 5, 6, 7, 8]
        found = await after(it, 8)
        assert numbers(found) == [9]
        assert found[-1] == END
    assert memory() == 0


async def test_a_large_last_item_travels_alone_too_and_the_end_follows() -> None:
    async with stage() as it:
        told(await (await it.begin("s-1", stream=True)))
        it.item("s-1", 1, BIG)
        it.say(Value("s-1", "values", "", (0,)))
        found = await after(it, 0)
        assert (len(found), numbers(found)) == (1, [1])
        assert isinstance((await after(it, 1))[0], Value)
        assert memory() == 0


async def test_the_items_that_were_made_before_a_worker_died_are_delivered() -> None:
    async with stage() as it:
        told(await (await it.begin("s-1", stream=True)))
        it.item("s-1", 1)
        it.item("s-1", 2, BIG)
        it.end(-11)
        assert numbers(await after(it, 0)) == [1]
        assert numbers(await after(it, 1)) == [2]
        (end,) = await after(it, 2)
        assert isinstance(end, Failure)
        assert (end.kind, end.returncode) == ("exited", -11)


async def test_cancelling_a_stream_lets_go_of_its_items_and_answers_who_waits() -> None:
    async with stage() as it:
        told(await (await it.begin("s-1", stream=True)))
        for number in range(1, 6):
            it.item("s-1", number, BIG)
        waiting = it.ask(Next("s-1", 5, 60_000))
        await asyncio.sleep(0)
        assert await it.heard.get() == Taken("s-1", 5)
        it.item("s-1", 6, BIG)
        assert numbers(told(await waiting)) == [6]
        last = it.ask(Next("s-1", 6, 60_000))
        await asyncio.sleep(0)
        told(await it.ask(Cancel("s-1")))
        (failure,) = told(await last)
        assert isinstance(failure, Failure)
        assert failure.kind == "cancelled"
        assert [await it.heard.get() for _ in range(2)] == [Taken("s-1", 6), Cancel("s-1")]
        it.item("s-1", 7, BIG)  # made before it heard of it
        it.say(Failure("s-1", "cancelled", "CancelledError", ""))
        assert not it.gave_up()
        assert memory() == 0


async def test_a_stream_that_ends_with_a_value_fails() -> None:
    async with stage() as it:
        told(await (await it.begin("s-1", stream=True)))
        it.value("s-1", BIG)
        (failure,) = await after(it, 0)
        assert isinstance(failure, Failure)
        assert failure.kind == "refused"
        assert memory() == 0


async def test_as_many_items_as_are_wanted_go_on_and_on() -> None:
    async with stage() as it:
        told(await (await it.begin("s-1", stream=True)))
        for first in range(1, 40 * WINDOW, WINDOW):
            assert await after(it, first - 1, wait=0) == [Pending("s-1")]
            for number in range(first, first + WINDOW):
                it.item("s-1", number)
            found = await after(it, first - 1)
            assert numbers(found) == [*range(first, first + WINDOW)]
        assert not it.gave_up()
