"""Generators in the worker: as far ahead as they may be, whole until they fail, always closed."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from local_runtime import hard
from local_runtime.worker import becomes, spawned, working

from agentix.wire.messages import Value
from agentix.wire.protocol import WINDOW, WINDOW_BYTES

BOTH = ["", "a"]


def noted(name: str) -> list[int]:
    """Tell which numbers a generator has made."""
    return [note[1] for note in hard.notes if isinstance(note, tuple) and note[0] == name]


@pytest.fixture(autouse=True)
def _no_notes() -> None:
    hard.notes.clear()


@pytest.mark.parametrize("kind", BOTH)
async def test_all_items_come_in_order_and_then_an_empty_value(kind: str) -> None:
    async with working() as (server, _):
        call = server.stream(f"flows::{kind}numbers", 1000)
        assert await server.all_of(call) == list(range(1000))
        answer = await server.answer(call)
        assert isinstance(answer, Value)
        assert answer.segments == (0,)
        empty = server.stream(f"flows::{kind}numbers", 0)
        assert await server.all_of(empty) == []
        assert isinstance(await server.answer(empty), Value)


@pytest.mark.parametrize("kind", BOTH)
async def test_no_more_is_made_than_may_wait_to_be_taken(kind: str) -> None:
    async with working() as (server, _):
        call = server.stream(f"streams::{kind}counts", f"{kind}ahead")
        await server.made(call, WINDOW)
        await server.value(server.call("far::noop"))
        assert noted(f"{kind}ahead") == list(range(1, WINDOW + 1))
        for taken in (1, 5, WINDOW):
            server.taken(call, taken)
            await server.made(call, WINDOW + taken)
            await server.value(server.call("far::noop"))
            assert noted(f"{kind}ahead")[-1] == WINDOW + taken
        server.taken(call, 3)  # late, and out of order: it says nothing new
        server.taken("no such call", 3)
        await server.value(server.call("far::noop"))
        assert noted(f"{kind}ahead")[-1] == 2 * WINDOW
        server.cancel(call)
        assert (await server.failure(call)).kind == "cancelled"
        assert hard.notes[-1] == f"{kind}ahead closed"
        assert noted(f"{kind}ahead")[-1] == 2 * WINDOW


@pytest.mark.parametrize("kind", BOTH)
async def test_large_items_are_held_back_by_their_bytes(kind: str) -> None:
    size = 3 << 20
    fit = -(-WINDOW_BYTES // size)
    async with working() as (server, _):
        call = server.stream(f"streams::{kind}counts", f"{kind}large", size)
        assert all(len(item) == size for item in await server.made(call, fit))
        await server.value(server.call("far::noop"))
        assert len(noted(f"{kind}large")) == fit
        server.taken(call, 1)
        await server.made(call, fit + 1)
        server.cancel(call)
        await server.failure(call)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("how", "name"),
    [
        ("value", "ValueError"),
        ("bare", "local_runtime.failing.BareError"),
        ("exit", "SystemExit"),
        ("interrupt", "KeyboardInterrupt"),
        ("generator-exit", "GeneratorExit"),
        ("stop", "RuntimeError"),
        ("mute", "local_runtime.failing.MuteError"),
        ("group", "ExceptionGroup"),
    ],
)
async def test_what_a_generator_raises_comes_behind_its_items(
    kind: str, how: str, name: str
) -> None:
    async with working() as (server, _):
        for count in (0, 1, 40):
            call = server.stream(f"streams::{kind}raises_after", how, count)
            assert await server.all_of(call) == list(range(count))
            failure = await server.failure(call)
            assert (failure.kind, failure.type) == ("raised", name)
            assert "agentix_runtime" not in failure.traceback
            assert "raises_after" in failure.traceback
        assert await server.value(server.call("far::noop", 1)) == 1


@pytest.mark.parametrize("kind", BOTH)
async def test_a_generator_that_raises_cancelled_is_cancelled(kind: str) -> None:
    async with working() as (server, _):
        call = server.stream(f"streams::{kind}raises_after", "cancelled", 2)
        assert await server.all_of(call) == [0, 1]
        assert (await server.failure(call)).kind == "cancelled"


async def test_a_generator_runs_and_is_closed_in_one_thread_and_context() -> None:
    async with working() as (server, _):
        call = server.stream("streams::tells_where", "one")
        found = await server.made(call, WINDOW)
        assert len({thread for thread, _ in found}) == 1
        assert {value for _, value in found} == {"one"}
        assert found[0][0] != threading.get_ident()
        server.cancel(call)
        await server.failure(call)
        assert hard.notes == [("one", found[0][0], "one")]


async def test_an_async_generator_runs_and_is_closed_in_one_task_and_context() -> None:
    async with working() as (server, _):
        call = server.stream("streams::atells_where", "one")
        (task,) = {*(await server.made(call, WINDOW))}
        assert task
        server.cancel(call)
        await server.failure(call)
        assert hard.notes == [("one", task, "one")]


@pytest.mark.parametrize("kind", BOTH)
async def test_a_lost_server_closes_generators_where_they_ran(kind: str) -> None:
    async with working(idle=False) as (server, _):
        call = server.stream(f"streams::{kind}tells_where", "lost")
        found = await server.made(call, WINDOW)
    where = found[0][0] if kind == "" else found[0]
    assert hard.notes == [("lost", where, "lost")]


async def test_cancelling_interrupts_a_generator_where_it_is() -> None:
    async with working() as (server, _):
        for name in ("stuck_after", "astuck_after"):
            call = server.stream(f"streams::{name}", name)
            await becomes(lambda name=name: f"{name} began" in hard.notes)  # type: ignore[misc]
            server.cancel(call)
            assert (await server.failure(call)).kind == "cancelled"
            assert hard.notes[-1] == f"{name} cleaned up"
            assert server.items[call] == [1]


async def test_a_generator_that_goes_on_when_it_is_cancelled_is_closed() -> None:
    async with working() as (server, _):
        call = server.stream("streams::aclings", "clings")
        await becomes(lambda: "clings 2" in hard.notes)
        server.cancel(call)
        assert (await server.failure(call)).kind == "cancelled"
        assert hard.notes[-1] == "clings closed"
        call = server.stream("streams::clings", "sync")
        await server.made(call, WINDOW)
        server.cancel(call)
        assert "ignored GeneratorExit" in (await server.failure(call)).message


@pytest.mark.parametrize("kind", BOTH)
async def test_cancelling_at_any_moment_ends_a_stream_once(kind: str) -> None:
    async with working() as (server, _):
        calls = []
        for number in range(60):
            call = server.stream(f"streams::{kind}counts", f"{kind}{number}")
            calls.append(call)
            if number % 3:
                await server.made(call, 1 + number % WINDOW)
            server.taken(call, number % 7)
            server.cancel(call)
            server.cancel(call)
        for number, call in enumerate(calls):
            assert (await server.failure(call)).kind == "cancelled"
            if noted(f"{kind}{number}"):
                assert hard.notes.count(f"{kind}{number} closed") == 1


async def test_a_large_item_that_is_packed_just_when_its_stream_is_cancelled_is_let_go() -> None:
    """Its memory would stay open, which this folder's tests are looked at for."""
    async with working() as (server, _):
        for number in range(300):
            call = server.stream("streams::acounts", f"large{number}", 400_000)
            await asyncio.sleep(number % 30 * 1e-4)
            server.cancel(call)
            assert (await server.failure(call)).kind == "cancelled"


@pytest.mark.parametrize("kind", BOTH)
async def test_an_item_that_cannot_be_sent_ends_the_stream_behind_the_good_ones(kind: str) -> None:
    async with working() as (server, _):
        call = server.stream(f"streams::{kind}unsendable_third")
        assert await server.all_of(call) == [1, bytes(1 << 20)]
        failure = await server.failure(call)
        assert (failure.kind, failure.type) == ("refused", "UnencodableError")
        assert hard.notes == ["unsendable closed"]


@pytest.mark.parametrize("kind", BOTH)
async def test_an_item_over_the_callers_limit_ends_the_stream(kind: str) -> None:
    async with working() as (server, _):
        call = server.stream(f"streams::{kind}counts", "limit", 2000, limit=1000)
        assert "accepts 1,000" in (await server.failure(call)).message
        assert hard.notes[-1] == "limit closed"


async def test_what_gives_an_iterator_streams_and_what_does_not_is_named() -> None:
    async with working() as (server, _):
        call = server.stream("streams::iterator_of_class")
        assert await server.all_of(call) == [1, 2, 3]
        for name in ("wraps_generator", "wraps_async_generator"):
            call = server.stream(f"streams::{name}", name)
            await server.made(call, WINDOW)
            server.cancel(call)
            await server.failure(call)
            assert hard.notes[-1] == f"{name} closed"
        for name in ("far::noop", "far::anoop"):
            failure = await server.failure(server.stream(name))
            assert (failure.kind, failure.type) == ("refused", "TargetError")
            assert "rebuild it" in failure.message
        for name in ("streams::counts", "streams::acounts"):
            failure = await server.failure(server.call(name, "x"))
            assert "is a generator function in the bundle" in failure.message
        failure = await server.failure(server.call("streams::wraps_generator", ""))
        assert "generator" in failure.message


async def test_bad_arguments_of_a_generator_are_its_failure() -> None:
    async with working() as (server, _):
        for name in ("streams::counts", "streams::acounts"):
            assert (await server.failure(server.stream(name, 1, 2, 3))).type == "TypeError"


@pytest.mark.parametrize("kind", BOTH)
async def test_many_streams_at_once_do_not_mix(kind: str) -> None:
    async with working() as (server, _):
        calls = [server.stream(f"flows::{kind}numbers", count) for count in range(40)]
        for count, call in enumerate(calls):
            assert await server.all_of(call) == list(range(count))


@pytest.mark.parametrize("kind", BOTH)
async def test_a_generator_that_forks_goes_on_in_one_process(kind: str) -> None:
    async with spawned() as (server, _):
        call = server.stream(f"streams::{kind}forks_between", 5)
        items = await server.all_of(call)
        assert items[0] == 0
        assert items[1] > 0
        assert items[2:] == [5]  # the child ended with 0
        assert isinstance(await server.answer(call), Value)
        assert not Path(f"/proc/{items[1]}").exists()


async def test_a_generator_that_raises_in_a_forked_child_ends_there() -> None:
    async with spawned() as (server, process):
        call = server.stream("streams::forks_and_raises")
        assert await server.all_of(call) == [1]
        assert process.says("ValueError: in the child of a generator")


@pytest.mark.parametrize("method", ["fork", "spawn"])
async def test_a_generator_may_use_a_pool_of_processes(method: str) -> None:
    async with spawned() as (server, process):
        call = server.stream("streams::multiprocesses", method)
        assert await server.all_of(call) == [0, 1, 4, 9]
        assert isinstance(await server.answer(call), Value)
        assert await server.value(server.call("far::noop", 1)) == 1
        if method == "fork":  # what a child logs goes to its standard error: it has no channel
            await becomes(lambda: process.says("logged in a child: 3"))


async def test_items_come_behind_what_was_printed_before_them() -> None:
    async with spawned() as (server, process):
        call = server.stream("streams::prints_and_yields", 100)
        await server.made(call, WINDOW)
        assert process.says(f"<{WINDOW - 1}>")
        assert not process.says(f"<{WINDOW}>")
        server.taken(call, 1)
        await server.made(call, WINDOW + 1)
        assert process.says(f"<{WINDOW}>")
        server.cancel(call)
        await server.failure(call)
