"""Answers that nobody fetches are kept for a while, and not without bounds."""

from __future__ import annotations

import asyncio
from pathlib import Path

from local_runtime import LocalRuntime, descriptors
from local_runtime.by_hand import Raw, raw

from agentix.wire import records
from agentix.wire.messages import Await, Follow, Records


async def leave_unfetched(one: Raw, count: int, size: int) -> list[str]:
    """Make so many calls, and fetch the answer of none; they end in this order."""
    ids = []
    for _ in range(count):
        ids.append(await one.begin("ablob", size, wait=0))
        await one.receive()
        await one.call("anoop")
    return ids


async def kept(one: Raw, ids: list[str]) -> list[str]:
    """Tell which answers there still are, without taking any: each is asked for elsewhere."""
    found = []
    for call_id in ids:
        answer = await one.ask(Await(call_id, 0))
        if getattr(answer.message, "kind", "") != "forgotten":
            found.append(call_id)
    return found


async def notices(one: Raw) -> list[str]:
    """Read what the journal says."""
    answer = await one.ask(Follow(one.name, "", 0, 0))
    ((message, _),) = answer.sections
    assert isinstance(message, Records)
    answer = await one.ask(Follow(one.name, message.journal, 0, 20_000))
    ((message, payload),) = answer.sections
    assert isinstance(message, Records)
    entries = records.load_all(payload, message.count)
    return [getattr(entry, "message", "") for entry in entries]


async def test_the_oldest_are_dropped_by_count_and_the_journal_says_so() -> None:
    with LocalRuntime(settings="bounds=Bounds(count=10, fresh=0)") as runtime:
        async with raw(runtime) as one:
            ids = await leave_unfetched(one, 50, 10)
            # An outcome that was told of takes the place of one for a moment.
            assert ids[-9:] == (await kept(one, ids))[-9:]
            assert len(await kept(one, ids)) <= 10
            async with asyncio.timeout(20):
                told = await notices(one)
            assert any("results were dropped that nobody had fetched" in text for text in told)


async def test_the_oldest_are_dropped_by_bytes() -> None:
    with LocalRuntime(settings="bounds=Bounds(bytes=4 << 20, fresh=0)") as runtime:
        async with raw(runtime) as one:
            ids = await leave_unfetched(one, 12, 1 << 20)
            memory = [name for name in descriptors(runtime.process.pid) if "memfd" in name]
            # One that was told of takes the place of another for a moment.
            assert 2 <= len(memory) <= 4
            assert (await kept(one, ids))[-1] == ids[-1]


async def test_the_last_few_seconds_are_kept_whatever_their_size() -> None:
    with LocalRuntime(settings="bounds=Bounds(count=2, bytes=2 << 20, fresh=1.5)") as runtime:
        async with raw(runtime) as one:
            ids = []
            for _ in range(8):  # all together: they are younger than that when the last one ends
                ids.append(await one.begin("ablob", 1 << 20, wait=0))
                await one.receive()
            for call_id in ids:
                answer = await one.ask(Await(call_id, 10_000))
                assert len(answer.sections[0][1]) > 1 << 20


async def test_they_are_dropped_with_time() -> None:
    with LocalRuntime(settings="bounds=Bounds(age=0.5, fresh=0)") as runtime:
        async with raw(runtime) as one:
            call_id = await one.begin("blob", 1 << 20, wait=0)
            await one.receive()
            async with asyncio.timeout(20):
                while not any("memfd" in name for name in descriptors(runtime.process.pid)):
                    await asyncio.sleep(0.005)
                while any("memfd" in name for name in descriptors(runtime.process.pid)):
                    await asyncio.sleep(0.05)
            assert (await one.ask(Await(call_id, 0))).failure().type == "ResultUnavailable"


async def test_2000_answers_that_are_never_fetched_leave_the_server_as_it_was() -> None:
    with LocalRuntime(settings="bounds=Bounds(count=100, fresh=0)") as runtime:
        async with raw(runtime) as one:
            ids = await leave_unfetched(one, 1000, 20_000)
            before = _memory(runtime)
            ids += await leave_unfetched(one, 1000, 20_000)
            assert _memory(runtime) - before < 4 << 20
            assert len(await kept(one, ids)) <= 100


def _memory(runtime: LocalRuntime) -> int:
    return int(Path(f"/proc/{runtime.process.pid}/statm").read_text().split()[1]) * 4096
