"""The journal keeps what nobody has read yet, in order, within bounds, and says what it dropped."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from agentix.wire import records
from agentix.wire.errors import MalformedError
from agentix.wire.records import Log, Output
from agentix_runtime.parcel import Parcel
from agentix_runtime.server.journal import Journal


def line(text: str) -> bytes:
    return records.dump(Output(1, "stdout", text))


def texts(payload: bytes, count: int) -> list[str]:
    found = list(records.load_all(payload, count))
    assert len(found) == count
    return [
        entry.line if isinstance(entry, Output) else entry.message
        for entry in found
        if isinstance(entry, Output | Log)
    ]


async def read(journal: Journal, client: str, after: int, wait: float = 0) -> tuple[int, list[str]]:
    first, count, payload = await journal.follow(client, journal.id, after, wait)
    return first, texts(payload, count)


async def test_a_new_client_is_told_where_to_begin_and_gets_all_that_nobody_has_taken() -> None:
    journal = Journal()
    journal.append(line("a"))
    journal.append(line("b"))
    assert await journal.follow("one", "", 0, 30) == (1, 0, b"")
    assert await read(journal, "one", 0) == (1, ["a", "b"])
    journal.append(line("c"))
    assert await read(journal, "one", 2) == (3, ["c"])
    assert await journal.follow("two", "", 0, 30) == (3, 0, b""), "one has taken a and b"


async def test_the_same_question_has_the_same_answer_until_more_is_taken() -> None:
    journal = Journal()
    await journal.follow("one", "", 0, 0)
    journal.append(line("a"))
    assert await read(journal, "one", 0) == (1, ["a"])
    assert await read(journal, "one", 0) == (1, ["a"])
    assert await read(journal, "one", 1) == (2, [])


async def test_records_are_kept_until_the_slowest_client_has_taken_them_or_is_forgotten() -> None:
    journal = Journal()
    await journal.follow("slow", "", 0, 0)
    await journal.follow("fast", "", 0, 0)
    for text in "abc":
        journal.append(line(text))
    assert await read(journal, "fast", 3) == (4, [])
    assert await read(journal, "slow", 1) == (2, ["b", "c"])
    journal.forget("slow")
    journal.forget("slow")
    assert await read(journal, "fast", 0) == (4, []), "nobody needs them any more"


async def test_an_open_question_is_answered_by_the_next_record() -> None:
    journal = Journal()
    await journal.follow("one", "", 0, 0)
    asking = asyncio.create_task(read(journal, "one", 0, 30))
    await asyncio.sleep(0)
    journal.append(line("a"))
    assert await asyncio.wait_for(asking, 5) == (1, ["a"])


async def test_a_burst_is_answered_together_and_at_once_when_a_result_waits_for_it() -> None:
    journal = Journal()
    await journal.follow("one", "", 0, 0)
    asking = asyncio.create_task(read(journal, "one", 0, 30))
    await asyncio.sleep(0)
    journal.append(line("first"))
    assert await asking == (1, ["first"])
    asking = asyncio.create_task(read(journal, "one", 1, 30))
    await asyncio.sleep(0)
    journal.append(line("a"))
    await asyncio.sleep(0)
    journal.append(line("b"))
    assert not asking.done()
    assert journal.mark() == 3
    await asyncio.sleep(0)
    assert await asking == (2, ["a", "b"])


async def test_a_question_ends_after_its_time_and_leaves_nothing() -> None:
    journal = Journal()
    await journal.follow("one", "", 0, 0)
    assert await read(journal, "one", 0, 0.01) == (1, [])
    asking = asyncio.create_task(read(journal, "one", 0, 30))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    journal.append(line("a"))
    assert await read(journal, "one", 0) == (1, ["a"])


@pytest.mark.parametrize(("size", "count"), [(10, 150_000), (100_000, 400), (15 << 20, 3)])
async def test_what_nobody_takes_is_bounded_and_the_numbers_tell_what_is_missing(
    size: int, count: int
) -> None:
    journal = Journal()
    await journal.follow("one", "", 0, 0)
    record = line("x" * size)
    for _ in range(count):
        journal.append(record)
    kept = 0
    at = 0
    missing = 0
    while at < count:
        first, number, payload = await journal.follow("one", journal.id, at, 0)
        missing += first - at - 1
        kept += number
        at = first + number - 1
        assert len(payload) <= max(300_000, len(record) + 4)
    assert kept + missing == count
    assert kept * len(record) <= 16 << 20
    assert kept <= 100_000
    assert kept >= min(90_000, (14 << 20) // len(record), count)
    assert missing


async def test_a_number_from_the_future_is_not_believed() -> None:
    journal = Journal()
    await journal.follow("one", "", 0, 0)
    assert (await journal.follow("one", journal.id, 1 << 60, 0))[:2] == (1, 0)
    journal.append(line("a"))
    assert await read(journal, "one", 0) == (1, ["a"])


async def test_the_worker_s_records_come_inline_in_shared_memory_or_not_at_all() -> None:
    journal = Journal()
    order: list[str] = []
    journal.drains.append(lambda: order.append("drained"))
    journal.copies.append(lambda record: order.append("copied"))
    await journal.follow("one", "", 0, 0)
    journal.take(bytearray(line("inline")))
    parcel = Parcel.of([line("shared")])
    journal.take(parcel)
    assert parcel.fd == -1
    journal.take(None)
    large = Parcel.of([bytes(1 << 20)] * 17)
    journal.take(large)
    assert large.fd == -1
    _, found = await read(journal, "one", 0)
    assert found[:2] == ["inline", "shared"]
    assert "lost" in found[2]
    assert "lost" in found[3]
    assert order == ["drained", *["copied"] * 4]
    await asyncio.sleep(0)
    journal.take(bytearray(line("next turn")))
    assert order[5:] == ["drained", "copied"]


async def test_an_answer_waits_for_its_call_s_records_and_not_for_those_of_calls_that_run() -> None:
    journal = Journal()
    journal.append(line("printed"))
    journal.take(line("a"), "call-a")
    journal.take(line("b"), "call-b")
    journal.take(line("a"), "call-a")
    assert journal.mark() == 1
    journal.settle("call-b")
    assert journal.mark() == 3
    journal.take(line("b"), "call-b")
    assert journal.mark() == 3
    journal.settle("call-a")
    assert journal.mark() == 4
    journal.note("for all")
    assert journal.mark() == journal.last == 6
    for call in ("call-a", "call-b", "call-c"):
        journal.settle(call)
    assert journal.mark() == 6
    assert not journal._of_calls


async def test_the_runtime_s_own_words_are_records_of_its_logger() -> None:
    journal = Journal()
    await journal.follow("one", "", 0, 0)
    journal.note("mind the gap")
    _, count, payload = await journal.follow("one", journal.id, 0, 0)
    [entry] = records.load_all(payload, count)
    assert isinstance(entry, Log)
    assert (entry.logger, entry.level, entry.message) == (
        "agentix.sandbox",
        logging.WARNING,
        "mind the gap",
    )


BAD = [
    b"",
    b"\x93\xa3log\x01",
    b"\x01\x01\x01",
    b"\xdd\xff\xff\xff\xff",
    b"\x91" * 5000,
    b"\xdc\xff\xff" + b"\x90" * 65535,
    b"\xdd\x00\x10\x00\x00" + b"\x91\x90" * (1 << 20),
    records.dump(Log(1, 20, "x", "y"))[:-1],
    records.dump(Log(1, 20, "x", "y")) + b"\xc0",
    records.dump(Log(1, -1, "x", "y")),
    records.dump(Log(1, 20, "x" * 2000, "y")),
]


@pytest.mark.parametrize("bad", BAD)
async def test_a_bad_record_harms_no_other(bad: bytes) -> None:
    journal = Journal()
    await journal.follow("one", "", 0, 0)
    for record in (line("a"), bad, line("b")):
        journal.append(record)
    found: list[object] = []
    while len(found) < 3:
        _, count, payload = await journal.follow("one", journal.id, len(found), 0)
        found += records.load_all(payload, count)
    assert found[0::2] == [Output(1, "stdout", "a"), Output(1, "stdout", "b")]
    assert isinstance(found[1], MalformedError)


@pytest.mark.parametrize("data", [b"\x01", b"\xff\xff\xff\xff", b"\x05\0\0\0\x90"])
def test_records_that_end_early_are_an_error(data: bytes) -> None:
    [found] = records.load_all(data, 3)
    assert isinstance(found, MalformedError)


class Counted(list[bytes]):
    """Counts how often something is taken out."""

    deletions = 0

    def __delitem__(self, which: Any) -> None:
        self.deletions += 1
        super().__delitem__(which)


async def test_room_for_a_large_record_is_made_at_once() -> None:
    journal = Journal()
    kept = journal._records = Counted()
    for _ in range(10_000):
        journal.append(bytes(1000))
    journal.append(bytes(16 << 20))
    assert kept.deletions == 1, "each makes all that follow move up"
    assert len(kept) == 1
    assert (await journal.follow("one", journal.id, 0, 0))[:2] == (10_001, 1)
