"""A client that is gone for some time leaves nothing behind; one that is there is left alone."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from local_runtime import LocalRuntime, descriptors
from local_runtime.by_hand import connect, raw

from agentix.wire import records
from agentix.wire.messages import Await, Follow, Pending, Records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ABSENT = 1.0


@pytest.fixture(scope="module")
def brief() -> Iterator[LocalRuntime]:
    """Give a runtime that soon takes a client for gone."""
    with LocalRuntime(settings=f"absent={ABSENT}") as runtime:
        yield runtime


async def test_the_calls_of_a_client_that_is_gone_are_cancelled_and_the_journal_says_so(
    brief: LocalRuntime,
) -> None:
    async with raw(brief) as other:
        journal = (await other.ask(Follow(other.name, "", 0, 0))).sections[0][0]
        assert isinstance(journal, Records)
        one = await connect(brief)
        await one.begin("wait_and_tell", "gone")
        while "gone began" not in (await other.call("told")).value():
            await asyncio.sleep(0)
        await one.close()
        async with asyncio.timeout(20):
            while "gone cancelled" not in (await other.call("told")).value():
                await asyncio.sleep(0.05)
        answer = await other.ask(Follow(other.name, journal.journal, journal.first - 1, 10_000))
        ((message, payload),) = answer.sections
        assert isinstance(message, Records)
        (entry,) = records.load_all(payload, message.count)
        assert "nothing was heard of a client for 1 s; its call was cancelled" in str(entry)


async def test_the_answers_of_a_client_that_is_gone_are_forgotten(brief: LocalRuntime) -> None:
    one = await connect(brief)
    call_id = await one.begin("blob", 1 << 20, wait=0)
    await one.receive()
    await one.close()
    async with raw(brief) as other:
        async with asyncio.timeout(20):
            while (await other.ask(Await(call_id, 0))).message == Pending(call_id):
                await asyncio.sleep(0.01)
            # Asking belongs to the client, too: it has to stop for some time.
            while any("memfd" in name for name in descriptors(brief.process.pid)):
                await asyncio.sleep(0.05)
        assert (await other.ask(Await(call_id, 0))).failure().kind == "forgotten"


@pytest.mark.parametrize("by", ["await", "follow"])
async def test_a_client_with_an_open_request_is_there(
    brief: LocalRuntime, tmp_path: Path, by: str
) -> None:
    go = tmp_path / "go"
    async with raw(brief) as one:
        journal = (await one.ask(Follow(one.name, "", 0, 0))).sections[0][0]
        assert isinstance(journal, Records)
        call_id = await one.begin("until", str(go), "there", wait=0)
        await one.receive()
        start = time.monotonic()
        while time.monotonic() - start < 3 * ABSENT:
            wait = int(1500 * ABSENT)
            if by == "await":
                assert (await one.ask(Await(call_id, wait))).message == Pending(call_id)
            else:
                last = journal.first - 1
                answer = await one.ask(Follow(one.name, journal.journal, last, wait))
                journal = answer.sections[0][0]
                assert isinstance(journal, Records)
        go.touch()
        assert (await one.ask(Await(call_id, 60_000))).value() == "there"


async def test_a_client_may_come_back_after_it_was_taken_for_gone(brief: LocalRuntime) -> None:
    one = await connect(brief)
    call_id = await one.begin("asleep", 60)
    await one.close()
    async with raw(brief, one.name) as back:
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            while True:
                await asyncio.sleep(2 * ABSENT)
                if (await back.ask(Await(call_id, 0))).message != Pending(call_id):
                    break
        assert (await back.ask(Await(call_id, 0))).failure().kind == "cancelled"
        assert (await back.call("noop", 1, call_id=f"{one.name}-new")).value() == 1
