"""What calls bring into the worker, and what they leave there: nothing but their results."""

from __future__ import annotations

import contextvars
import os
import queue
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_runtime import failing, far, hard, shop, unruly
from local_runtime.worker import becomes, spawned, working

from agentix.utils import context
from agentix.wire import arguments, messages
from agentix.wire.arguments import MINOR
from agentix.wire.frames import frame_prefix
from agentix.wire.messages import Call, Value
from agentix_runtime.parcel import Parcel
from agentix_runtime.worker import inherit
from agentix_runtime.worker.threads import Threads

BOTH = ["", "a"]
OTHER = "3.99"


@pytest.fixture(autouse=True)
def _no_notes() -> None:
    hard.notes.clear()


# Arguments


async def test_code_of_another_python_is_refused_before_it_is_looked_at() -> None:
    async with working() as (server, _):
        for target in ("far::noop", "far::anoop"):
            for _ in range(2):  # imported, and not yet imported
                call = server.call(target, unruly.Rebuilds("code"), minor=OTHER)
                failure = await server.failure(call)
                assert (failure.kind, failure.type) == ("refused", "ArgumentsError")
                for part in ("lambda", OTHER, MINOR, "[tool.agentix] python", "module of the"):
                    assert part in failure.message
                assert "\n" not in failure.message
        assert hard.notes == []
        call = server.stream("streams::counts", unruly.Rebuilds("code"), minor=OTHER)
        assert OTHER in (await server.failure(call)).message


async def test_code_of_the_same_python_and_names_of_any_are_taken() -> None:
    async with working() as (server, _):
        base = 40
        assert await server.value(server.call("unruly::code_of", lambda: base + 2)) == 42
        assert await server.value(server.call("unruly::code_of", far.noop, minor="")) is None


async def test_arguments_that_do_something_when_they_are_rebuilt_fail_their_call_only() -> None:
    async with working() as (server, _):
        for target in ("far::noop", "far::anoop"):
            call = server.call(target, unruly.Rebuilds("exit"))
            assert (await server.failure(call)).type == "SystemExit"
            assert await server.value(server.call(target, unruly.Rebuilds("fine"))) == "fine"


# Context


@pytest.mark.parametrize("kind", BOTH)
async def test_a_context_is_there_for_its_call_and_nowhere_after_it(kind: str) -> None:
    async with working() as (server, _):
        for value in ("one", "two"):
            carried = {"baggage": {"name": value}, "variables": {"carried": value}}
            call = server.call(f"hard::{kind}tells_carried", carried=carried)
            assert await server.value(call) == [value, value]
            assert await server.value(server.call(f"hard::{kind}tells_carried")) == ["unset", None]
        for _ in range(3):
            assert await server.value(server.call(f"hard::{kind}context_of_caller")) == "unset"
    assert context.snapshot() == {}
    assert hard.variable.get() == "unset"


@pytest.mark.parametrize("kind", BOTH)
async def test_a_generator_has_its_context_to_the_end(kind: str) -> None:
    carried = {"baggage": {"name": "kept"}, "variables": {"carried": "kept"}}
    async with working() as (server, _):
        call = server.stream(f"streams::{kind}yields_carried", carried=carried)
        assert (await server.made(call, 3))[:3] == [["kept", "kept"]] * 3
        server.taken(call, 3)
        server.cancel(call)
        await server.failure(call)
        assert hard.notes == [["kept", "kept"]]


async def test_a_context_is_seen_in_threads_that_a_call_starts() -> None:
    async with spawned() as (server, _):
        call = server.call("hard::sets_and_tells_in_executor", "inside")
        assert await server.value(call) == ["inside"] * 4
        assert await server.value(server.call("hard::in_executor")) == ["unset"] * 4


def test_a_thread_of_the_pool_keeps_nothing_of_the_call_that_it_was_started_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", ThreadPoolExecutor.submit)
    inherit.install()
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()

    def start() -> None:
        hard.variable.set("the call's")
        Threads().run(lambda: seen.put(hard.variable.get()))

    contextvars.copy_context().run(start)
    assert seen.get(timeout=10) == "unset"


async def test_a_context_that_cannot_be_applied_fails_its_call_only() -> None:
    async with working() as (server, _):
        call = server.call("far::noop", carried={"nonsense": 1})
        assert (await server.failure(call)).type == "ArgumentsError"


async def test_calls_do_not_share_what_they_set() -> None:
    async with working() as (server, _):
        calls = [server.call("far::aswap_variable", f"{n}") for n in range(50)]
        calls += [server.call("far::swap_variable", f"{n}") for n in range(50)]
        assert {await server.value(call) for call in calls} == {"unset"}


# What functions raise


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("how", [*failing.FAILURES])
async def test_whatever_is_raised_is_one_failure(kind: str, how: str) -> None:
    async with working() as (server, worker):
        call = server.call(f"failing::{kind}fail", how)
        failure = await server.failure(call)
        assert failure.kind == ("cancelled" if how == "cancelled" else "raised")
        call = server.call(f"hard::{kind}waits_and_fails", how)
        assert (await server.failure(call)).type == failure.type
        assert await server.value(server.call(f"far::{kind}noop", 1)) == 1
        assert len(worker._threads._all) <= 2


@pytest.mark.parametrize("how", ["exit", "interrupt", "bare", "generator-exit"])
async def test_threads_and_tasks_of_a_function_may_fail_too(how: str) -> None:
    async with spawned() as (server, process):
        pid = await server.value(server.call("far::process"))
        await server.value(server.call("hard::leave_failing_thread", how))
        await server.value(server.call("failing::leave_failing_task", how))
        assert await server.value(server.call("far::process")) == pid == process.pid
        assert await server.value(server.call("far::aprocess")) == pid


# Results


@pytest.mark.parametrize("how", ["exit", "interrupt", "cancelled", "endless", "nonsense"])
async def test_a_result_that_misbehaves_while_it_is_pickled_is_refused(how: str) -> None:
    async with working() as (server, _):
        call = server.call("unruly::misbehaves", how, form="pickle")
        failure = await server.failure(call)
        assert (failure.kind, failure.type) == ("refused", "UnencodableError")
        assert await server.value(server.call("far::noop", 1)) == 1


@pytest.mark.parametrize("how", ["dict", "class"])
async def test_a_result_that_misbehaves_while_it_is_encoded_is_refused(how: str) -> None:
    async with working() as (server, _):
        failure = await server.failure(server.call("unruly::odd_value", how))
        assert (failure.kind, failure.type) == ("refused", "UnencodableError")
        assert await server.value(server.call("far::anoop", 1)) == 1


async def test_a_result_that_forks_while_it_is_pickled_is_answered_once() -> None:
    async with spawned() as (server, _):
        answer = await server.answer(server.call("unruly::misbehaves", "fork", form="pickle"))
        assert isinstance(answer, Value)
        assert await server.value(server.call("far::noop", 1)) == 1


@pytest.mark.parametrize("size", [1, 200_000, 300_000, 9 << 20])
async def test_results_of_any_size_are_whole(size: int) -> None:
    async with working() as (server, _):
        for name in ("blob", "ablob"):
            assert await server.value(server.call(f"far::{name}", size)) == bytes(size)
        assert await server.value(server.call("far::length", bytes(size))) == size


@pytest.mark.parametrize("kind", ["result", "item"])
async def test_others_on_the_loop_go_on_while_a_large_array_is_put_in_order(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    over = threading.Event()
    copy = np.ascontiguousarray

    def slowly(array: Any) -> Any:
        assert over.wait(10), "others wait for it"
        return copy(array)

    monkeypatch.setattr(np, "ascontiguousarray", slowly)
    async with working() as (server, _):
        if kind == "result":
            large = server.call("shop::transposed", 1000)
        else:
            large = server.stream("shop::transposes", 1000, 1)
        assert await server.value(server.call("far::anoop", 1)) == 1
        assert large not in server.answers
        over.set()
        found = await server.value(large)
        if kind == "item":
            (found,) = server.items[large]
        assert np.array_equal(found, await shop.transposed(1000))


# Functions


async def test_a_wrapper_may_block_or_give_a_coroutine() -> None:
    async with working() as (server, _):
        for target in ("far::awrapped", "hard::runs_a_loop", "far::sync_that_awaits"):
            assert await server.value(server.call(target, 1)) in (1, 2)
            assert await server.value(server.call(target, 1)) in (1, 2)


async def test_a_coroutine_functions_first_step_is_a_task_of_its_own() -> None:
    async with working() as (server, _):
        await server.value(server.call("far::anoop"))
        for _ in range(2):
            found = await server.value(server.call("hard::about_its_task"))
            assert found == [True, True, "timed out", "scheduled"]


# Output


async def test_what_was_printed_is_out_before_the_answer() -> None:
    async with spawned() as (server, process):
        for number in range(30):
            text = f"[{number}]"
            await server.value(server.call("unruly::prints", text))
            assert process.says(text)
            await server.value(server.call("unruly::prints_in_c", f"c{text}"))
            assert process.says(f"c{text}")
        await server.value(server.call("far::noop"))


async def test_what_stands_in_for_the_output_cannot_keep_a_call_from_its_answer() -> None:
    async with spawned() as (server, _):
        assert await server.value(server.call("unruly::replaces_output")) == 1
        assert await server.value(server.call("far::anoop", 2)) == 2


async def test_the_channel_is_neither_standard_output_nor_inherited() -> None:
    async with spawned() as (server, process):
        assert await server.value(server.call("far::read_stdin")) == (b"", "")
        junk = b"\x00\x00\x00\xff" * 100
        assert await server.value(server.call("far::write_stdout", junk)) == len(junk)
        await server.value(server.call("far::write_descriptors", junk))
        assert await server.value(server.call("far::noop", 1)) == 1
        inherited = await server.value(server.call("hard::descriptors_of_a_child"))
        assert not [one for one in inherited if "socket" in one]
        assert process.says("printed")


# Processes


async def test_a_worker_whose_functions_fork_answers_once_and_stays_one() -> None:
    async with spawned() as (server, process):
        for target in ("fork_and_return", "afork_and_return", "afork_and_wait"):
            calls = [server.call("far::asleep", 0.1) for _ in range(5)]
            child = await server.value(server.call(f"children::{target}"))
            await becomes(lambda child=child: _ended(child))  # type: ignore[misc]
            for call in calls:
                assert isinstance(await server.answer(call), Value)
            assert await server.value(server.call("far::process")) == process.pid


async def test_a_forked_child_does_not_keep_what_has_arrived_by_half() -> None:
    async with spawned() as (server, _):
        forks = server.call("children::fork_amid_a_frame")
        pickled = arguments.dump((b"whole",), {})
        call = Call(
            "late", "local_runtime.far::noop", "values", 1 << 20, 0, False, "", pickled.segments
        )
        head, parcel = messages.dump(call), Parcel.of(pickled.stream)
        frame = frame_prefix(head, 0, parcel=True) + head
        sock = server.channel._sock
        socket.send_fds(sock, [frame[:5]], [parcel.fd])
        parcel.close()
        assert await server.value(forks) == (1, 0)
        sock.send(frame[5:])
        assert await server.value("late") == b"whole"


async def test_forks_amid_logging_neither_hang_nor_speak_for_the_worker() -> None:
    async with spawned() as (server, process):
        assert await server.value(server.call("hard::forks_while_logging", 40)) == [7] * 40
        messages = [getattr(one, "message", "") for one in server.records]
        assert "meanwhile" in messages
        assert "in the child" not in messages
        assert process.says("in the child")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
async def test_multiprocessing_works_and_its_children_print(method: str) -> None:
    async with spawned() as (server, process):
        assert await server.value(server.call("children::multiprocess", method)) == [1, 2, 3]
        assert process.says("from a child")
        assert await server.value(server.call("far::noop", 1)) == 1


async def test_a_daemon_that_outlives_its_call_does_not_keep_the_channel_open() -> None:
    async with spawned() as (server, _):
        pid = await server.value(server.call("children::start_daemon"))
    try:
        assert not _ended(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
