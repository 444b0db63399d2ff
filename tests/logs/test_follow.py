"""The follower brings every record to this process once, in order, whatever happens on the way."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from patience import eventually_async

from agentix.client import follow
from agentix.client.answers import Answer, Section
from agentix.client.follow import Follower
from agentix.client.http import ConnectionLost
from agentix.wire import records
from agentix.wire.messages import Follow, Records
from agentix.wire.records import Log, Output
from agentix_runtime.server.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable


class Runtime:
    """A journal behind a connection that does as it is told."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.asked = 0
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.delay = 0.0

    async def ask(self, request: Follow) -> Answer:
        self.asked += 1
        self.before()
        await asyncio.sleep(self.delay)
        journal = self.journal  # which may be another one by the time of the answer
        first, count, payload = await journal.follow(
            request.client, request.journal, request.after, request.wait / 1000
        )
        self.after()
        message = Records(journal.id, first, count, (len(payload),))
        return Answer(journal.last, [Section(message, [payload])])

    def say(self, *texts: object) -> int:
        for text in texts:
            self.journal.append(records.dump(Log(1, logging.INFO, "far", f"{text}")))
        return self.journal.mark()

    def follower(self, name: str = "one") -> Follower:
        follower = Follower(self.ask, name, "box")
        follower.start()
        return follower


async def test_what_was_logged_before_a_mark_is_delivered_when_it_is_reached(kept: Any) -> None:
    runtime = Runtime()
    runtime.say("early")
    follower = runtime.follower()
    for number in range(20):
        await follower.reached(runtime.say(number))
        assert kept.messages() == ["early", *map(str, range(number + 1))]
    await follower.close()
    assert {record.sandbox_id for record in kept.records} == {"box"}


async def test_nothing_new_is_nothing_to_wait_for(kept: Any) -> None:
    runtime = Runtime()
    follower = runtime.follower()
    await follower.reached(0)
    await follower.reached(runtime.say("a"))
    asked = runtime.asked
    for _ in range(100):
        await follower.reached(1)
    assert runtime.asked <= asked + 1
    await follower.close()


async def test_closing_delivers_what_is_there(kept: Any) -> None:
    runtime = Runtime()
    follower = runtime.follower()
    await follower.reached(runtime.say("a"))
    runtime.say(*range(5000))
    await follower.close()
    assert kept.messages() == ["a", *map(str, range(5000))]
    await follower.close()
    assert runtime.journal._taken == 5001, "the next client need not be told again"


async def test_a_connection_that_breaks_at_random_loses_nothing_and_repeats_nothing(
    kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(follow, "_LONGEST_PAUSE", 0.002)
    chance = random.Random(7)

    def sometimes() -> None:
        if chance.random() < 0.3:
            raise ConnectionLost("cut")

    runtime = Runtime()
    runtime.before = runtime.after = sometimes
    follower = runtime.follower()
    for start in range(0, 20_000, 500):
        runtime.say(*range(start, start + 500))
        await asyncio.sleep(0.002)
    await follower.reached(runtime.journal.last)
    runtime.before = runtime.after = lambda: None
    assert kept.messages() == list(map(str, range(20_000)))
    await follower.close()


async def test_two_clients_of_one_process_deliver_once_and_in_order(kept: Any) -> None:
    runtime = Runtime()
    one, two = runtime.follower("one"), runtime.follower("two")
    said = 0
    for round_ in range(30):
        mark = runtime.say(*range(said, said + 300))
        said += 300
        if round_ == 10:
            await one.close()
            one = runtime.follower("three")
        await (one if round_ % 2 else two).reached(mark)
        assert kept.messages() == list(map(str, range(said)))
    await one.close()
    await two.close()


async def test_a_client_that_comes_while_another_delivers_does_not_overtake_it(kept: Any) -> None:
    runtime = Runtime()
    one = runtime.follower("one")
    await one.reached(runtime.say("first"))
    runtime.say(*range(30_000))
    while runtime.journal._taken < 5000:
        await asyncio.sleep(0)
    two = runtime.follower("two")
    await two.reached(runtime.say("last"))
    assert kept.messages() == ["first", *map(str, range(30_000)), "last"]
    await one.close()
    await two.close()


def test_batches_that_overlap_are_delivered_once(kept: Any) -> None:
    journal = follow._Journal("box")
    lines = [records.prefixed(records.dump(Output(1, "stdout", f"{n}"))) for n in range(9)]
    for after, first, last in [(0, 1, 3), (0, 1, 5), (2, 3, 4), (5, 6, 6), (4, 5, 9)]:
        journal.put(after, first, last - first + 1, b"".join(lines[first - 1 : last]))
    assert journal.deliver()
    assert kept.messages() == [f"{n}" for n in range(9)]
    assert journal.delivered == 9


def test_clients_in_several_threads_deliver_once_and_in_order(kept: Any) -> None:
    """Each with its own runtime object for the same journal id, as two loops have."""
    runtime = Runtime()
    runtime.say(*range(20_000))
    barrier = threading.Barrier(4)

    async def read(name: int) -> None:
        copy = Runtime()
        copy.journal.id = runtime.journal.id
        copy.say(*range(20_000))
        barrier.wait()
        follower = copy.follower(f"{name}")
        await follower.reached(20_000)
        assert len(kept.records) == 20_000
        await follower.close()

    errors: list[BaseException] = []

    def run(name: int) -> None:
        try:
            asyncio.run(read(name))
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=run, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert kept.messages() == list(map(str, range(20_000)))


async def test_what_was_dropped_is_told_in_its_place_with_a_count(kept: Any) -> None:
    runtime = Runtime()
    follower = runtime.follower()
    await follower.reached(runtime.say("before"))
    while not runtime.journal._waiting:
        await asyncio.sleep(0)
    runtime.say(*range(150_000))
    runtime.say("after")
    await eventually_async(
        lambda: kept.records[-1].getMessage() == "after", "all is delivered, if slowly"
    )
    await follower.close()
    texts = kept.messages()
    assert texts[0] == "before"
    assert texts[-1] == "after"
    [gap] = [r for r in kept.records if r.name == "agentix.sandbox"]
    assert gap.levelno == logging.WARNING
    missing = int(gap.getMessage().split()[0].replace(",", ""))
    assert missing + len(texts) - 1 == 150_002
    assert texts[texts.index(gap.getMessage()) + 1] == str(missing)


async def test_a_new_journal_is_followed_from_its_beginning(
    kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_FIRST_PAUSE", 0.001)
    runtime = Runtime()
    follower = runtime.follower()
    await follower.reached(runtime.say(*range(10)))
    old, runtime.journal = runtime.journal, Journal()
    runtime.say("anew")
    old._wake()
    async with asyncio.timeout(10):
        while kept.messages()[-1] != "anew":
            await asyncio.sleep(0.001)
    assert kept.messages() == [*map(str, range(10)), "anew"]
    await follower.close()


async def test_many_records_do_not_hold_the_loop(kept: Any) -> None:
    runtime = Runtime()
    follower = runtime.follower()
    await follower.reached(runtime.say("a"))
    mark = runtime.say(*range(20_000))
    reached = asyncio.create_task(follower.reached(mark))
    longest = total = 0.0
    turns = 0
    while not reached.done():
        began = time.thread_time()
        await asyncio.sleep(0)
        took = time.thread_time() - began
        longest, total = max(longest, took), total + took
        turns += 1
    assert len(kept.records) == 20_001
    assert turns > 10
    assert longest < total / 3
    await follower.close()


async def test_a_handler_that_raises_or_is_slow_or_logs_harms_nobody(
    kept: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class Bad(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name == "far":
                logging.getLogger("near").debug("seen %s", record.getMessage())
                raise ValueError("bad handler")

    runtime = Runtime()
    bad = Bad()
    logging.getLogger().addHandler(bad)
    try:
        follower = runtime.follower()
        await follower.reached(runtime.say(*range(100)))
        await follower.close()
    finally:
        logging.getLogger().removeHandler(bad)
    assert kept.messages() == list(map(str, range(100)))
    assert capsys.readouterr().err.count("ValueError: bad handler") == 1


async def test_a_handler_that_takes_long_delays_a_result_for_a_bounded_time(
    kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_BOUND", 0.1)

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            time.sleep(0.1)

    runtime = Runtime()
    slow = Slow()
    logging.getLogger("far").addHandler(slow)
    try:
        follower = runtime.follower()
        began = time.monotonic()
        await follower.reached(runtime.say(*range(20)))
        assert time.monotonic() - began < 1.5
        monkeypatch.setattr(follow, "_BOUND", 30)
        await follower.reached(20)
        await follower.close()
    finally:
        logging.getLogger("far").removeHandler(slow)
    assert kept.messages() == list(map(str, range(20)))


async def test_debug_logging_of_the_libraries_feeds_nothing_back(kept: Any) -> None:
    asyncio.get_running_loop().set_debug(True)
    for name in ("asyncio", "aiohttp", "socketio", "engineio"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    runtime = Runtime()
    follower = runtime.follower()
    await follower.reached(runtime.say(*range(1000)))
    await follower.close()
    assert kept.messages() == list(map(str, range(1000)))
    assert runtime.journal.last == 1000


async def test_hostile_records_cost_a_notice_each(
    kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Runtime()
    runtime.say("before")
    for bad in (b"", b"\xc1", b"\x91" * 10_000, records.dump(Output(1, "stdout", "x"))[:-1]):
        runtime.journal.append(bad)
    mark = runtime.say("after")
    follower = runtime.follower()
    await follower.reached(mark)
    await follower.close()
    assert kept.messages("far") == ["before", "after"]
    assert len(kept.messages("agentix.sandbox")) == 4


@pytest.mark.parametrize(
    "answer",
    [
        lambda self, request: Records(self.journal.id, 1, 1, (5,)),
        lambda self, request: Records(self.journal.id, 1 << 61, 0, (0,)),
        lambda self, request: Records(f"{time.monotonic_ns()}", 1, 0, (0,)),
        lambda self, request: Records(self.journal.id, request.after + 1, 1 << 20, (0,)),
    ],
)
async def test_a_hostile_runtime_makes_nobody_spin(kept: Any, answer: Any) -> None:
    runtime = Runtime()
    asked = 0

    async def ask(request: Follow) -> Answer:
        nonlocal asked
        asked += 1
        message = answer(runtime, request)
        return Answer(1, [Section(message, [bytes(message.segments[0])])])

    follower = Follower(ask, "one")
    follower.start()
    await asyncio.sleep(0.4)
    assert asked < 30
    await follower.close()


async def test_a_runtime_that_is_gone_is_asked_less_and_less_until_the_client_closes(
    kept: Any,
) -> None:
    runtime = Runtime()
    asked: list[float] = []

    def gone() -> None:
        asked.append(time.monotonic())
        raise ConnectionLost("gone")

    runtime.before = gone
    follower = runtime.follower()
    waiting = asyncio.create_task(follower.reached(5))
    await eventually_async(lambda: len(asked) == 6, "it asks again")
    pauses = [after - before for before, after in pairwise(asked)]
    # A call that waits hurries the first one.
    for pause, least in zip(pauses[1:], (0.1, 0.2, 0.4, 0.8), strict=True):
        assert pause > 0.9 * least
    await follower.close()
    await waiting


async def test_the_callers_context_does_not_follow(kept: Any) -> None:
    import contextvars

    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("the caller's")
    seen: list[str] = []

    class Looks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(variable.get())

    looks = Looks()
    logging.getLogger("far").addHandler(looks)
    try:
        runtime = Runtime()
        follower = runtime.follower()
        await follower.reached(runtime.say("a"))
        await follower.close()
    finally:
        logging.getLogger("far").removeHandler(looks)
    assert seen == ["unset"]
