"""Cancelling tells the call's own code, wherever it runs, and nothing besides."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from local_runtime import far, hard
from local_runtime.worker import becomes, spawned, working

from agentix.wire.messages import Failure
from agentix_runtime.worker import interrupts
from agentix_runtime.worker.interrupts import Gate, shielded

if TYPE_CHECKING:
    from types import FrameType


@pytest.fixture(autouse=True)
def _no_notes() -> None:
    hard.notes.clear()


async def began(name: str) -> None:
    """Wait until a function has."""
    await becomes(lambda: f"{name} began" in hard.notes)


# Of calls


async def test_a_thread_is_told_by_the_exception_that_a_task_is_told_by() -> None:
    async with working() as (server, _):
        call = server.call("hard::spin", "spin")
        await began("spin")
        server.cancel(call)
        failure = await server.failure(call)
        assert (failure.kind, failure.type) == ("cancelled", "asyncio.exceptions.CancelledError")
        assert "in spin" in failure.traceback
        assert hard.notes == ["spin began", ("spin", True), "spin cleaned up"]
        assert await server.value(server.call("far::noop", 1)) == 1


async def test_a_thread_that_blocks_in_c_is_told_when_it_returns_and_ends_its_call_then() -> None:
    async with working() as (server, _):
        call = server.call("hard::doze", "doze", 0.5)
        await began("doze")
        server.cancel(call)
        await server.value(server.call("far::noop"))
        assert call not in server.answers
        assert (await server.failure(call)).kind == "cancelled"


async def test_a_thread_is_told_once_and_may_go_on() -> None:
    async with working() as (server, _):
        call = server.call("hard::stubborn", "stubborn")
        await began("stubborn")
        for _ in range(3):
            server.cancel(call)
        assert await server.value(call) == "1"


async def test_cleaning_up_is_not_interrupted() -> None:
    async with working() as (server, _):
        call = server.call("hard::cleans_slowly", "slowly")
        await began("slowly")
        server.cancel(call)
        await becomes(lambda: "slowly cleaned up" in hard.notes)
        server.cancel(call)
        assert (await server.failure(call)).kind == "cancelled"
        assert hard.notes[-1] == "slowly cleaned up slowly"


async def test_many_threads_are_told_at_once() -> None:
    async with working() as (server, _):
        calls = {name: server.call("hard::spin", name) for name in map(str, range(12))}
        for name in calls:
            await began(name)
        for call in calls.values():
            server.cancel(call)
        for call in calls.values():
            assert (await server.failure(call)).kind == "cancelled"
        assert [note for note in hard.notes if isinstance(note, tuple)].count(("0", True)) == 1
        assert sum(str(note).endswith("cleaned up") for note in hard.notes) == 12


async def test_cancelling_hits_its_own_call_and_never_the_next_one_in_the_thread() -> None:
    """Calls that end about when they are cancelled, and others in the same threads behind them."""
    async with working() as (server, _):
        await server.value(server.call("hard::brief", 0))
        calls = []
        for number in range(1500):
            cancelled = server.call("hard::brief", number)
            calls.append((server.call("hard::brief", number), number))
            if number % 2:
                await asyncio.sleep(0)
            server.cancel(cancelled)
            if number % 50 == 0:
                await server.answer(cancelled)
        for call, number in calls:
            assert await server.value(call) == number
        kinds = {
            found[0].kind for found in server.answers.values() if isinstance(found[0], Failure)
        }
        assert kinds == {"cancelled"}


async def test_a_thread_that_only_logs_is_told_and_every_line_is_whole() -> None:
    async with spawned() as (server, _):
        calls = [server.call("hard::logs", f"lines-{number}") for number in range(3)]
        for number in range(3):
            await server.until(
                lambda number=number: any(  # type: ignore[misc]
                    getattr(one, "message", "") == f"lines-{number} 3" for one in server.records
                )
            )
        for call in calls:
            server.cancel(call)
        for call in calls:
            assert (await server.failure(call)).kind == "cancelled"
        for number in range(3):
            found = [
                int(one.message.split()[1])  # type: ignore[union-attr]
                for one in server.records
                if getattr(one, "message", "").startswith(f"lines-{number} ")
            ]
            assert found == [*range(len(found))]
        again = server.call("hard::logs", "again", 5)  # and nothing stayed locked
        await server.value(again)
        assert server.order[-2:] == ["Record", f"{again} Value"]


async def test_a_thread_inside_of_threading_is_told_and_leaves_no_lock_behind() -> None:
    async with working() as (server, _):
        for round_ in range(20):
            call = server.call("hard::waits_in_threading", f"{round_}")
            await began(f"{round_}")
            server.cancel(call)
            assert (await server.failure(call)).kind == "cancelled"
        assert hard.shared._cond.acquire(timeout=5)  # type: ignore[attr-defined]
        hard.shared._cond.release()  # type: ignore[attr-defined]


async def test_a_task_is_cancelled_and_answers_when_it_has_ended() -> None:
    far.log.clear()
    async with working() as (server, _):
        call = server.call("far::wait_and_tell", "task")
        await becomes(lambda: "task began" in far.log)
        server.cancel(call)
        server.cancel(call)
        assert (await server.failure(call)).kind == "cancelled"
        assert far.log == ["task began", "task cancelled"]


async def test_a_call_that_waits_for_a_thread_ends_at_once_and_never_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentix_runtime.worker.threads._MOST", 1)
    async with working() as (server, _):
        first = server.call("hard::spin", "first")
        await began("first")
        waiting = [server.call("hard::spin", f"waiting {number}") for number in range(3)]
        for call in waiting[:2]:
            server.cancel(call)
        for call in waiting[:2]:
            assert (await server.failure(call)).kind == "cancelled"
        server.cancel(first)
        await server.failure(first)
        await began("waiting 2")
        server.cancel(waiting[2])
        await server.failure(waiting[2])
        assert "waiting 0 began" not in hard.notes


async def test_a_call_cancelled_while_its_module_is_imported_does_not_run() -> None:
    async with working() as (server, worker):
        before = far.counter
        gate = threading.Event()
        load = worker._targets.load

        def slowly(name: str) -> object:
            gate.wait(10)
            return load(name)

        worker._targets.load = slowly  # type: ignore[method-assign,assignment]
        for target in ("far::count", "flows::once"):
            gate.clear()
            call = server.call(target)
            await becomes(lambda: worker._running)
            (job,) = worker._running.values()
            await becomes(lambda job=job: job.begun)  # type: ignore[misc]
            server.cancel(call)
            await becomes(lambda job=job: job.cancelled)  # type: ignore[misc]
            gate.set()
            assert (await server.failure(call)).kind == "cancelled"
        assert far.counter == before


async def test_a_lost_server_tells_threads_and_tasks() -> None:
    far.log.clear()
    async with working(idle=False) as (server, _):
        server.call("hard::spin", "orphan")
        server.call("far::wait_and_tell", "orphan")
        await began("orphan")
        await becomes(lambda: "orphan began" in far.log)
    assert ("orphan", True) in hard.notes
    assert "orphan cancelled" in far.log


async def test_a_worker_without_a_server_ends_though_a_thread_is_stuck() -> None:
    async with spawned() as (server, process):
        server.call("far::sleep", 60)
        await server.value(server.call("far::anoop"))
        start = time.monotonic()
        server.channel.close()
        await becomes(lambda: process.started.poll() is not None)
        assert time.monotonic() - start < 5


# Of the gate alone


def told_while(gate: Gate, run: threading.Event) -> threading.Thread:
    """Tell a gate from another thread, once something runs."""

    def tell() -> None:
        run.wait(10)
        while not gate.tell():
            time.sleep(0.001)

    thread = threading.Thread(target=tell)
    thread.start()
    return thread


def test_what_is_shielded_is_finished_first() -> None:
    gate, running = Gate(), threading.Event()
    done: list[str] = []

    def runtime() -> None:
        running.set()
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pass
        shielded(done.append, "inner")
        done.append("whole")

    def function() -> None:
        shielded(runtime)
        done.append("went on")  # pragma: no cover

    teller = told_while(gate, running)
    with pytest.raises(asyncio.CancelledError):
        gate.run(function)
    teller.join()
    assert done == ["inner", "whole"]


def test_logging_while_cleaning_up_is_not_interrupted_again() -> None:
    gate, running = Gate(), threading.Event()
    done: list[int] = []

    def function() -> None:
        try:
            running.set()
            while True:
                pass
        finally:
            for number in range(100):
                shielded(done.append, number)

    teller = told_while(gate, running)
    with pytest.raises(asyncio.CancelledError):
        gate.run(function)
    teller.join()
    assert done == [*range(100)]


def test_a_gate_that_was_told_before_runs_nothing() -> None:
    gate = Gate()
    assert gate.tell()
    with pytest.raises(asyncio.CancelledError):
        gate.run(pytest.fail, "it ran")


def test_a_thread_that_goes_on_to_a_lock_while_it_is_looked_at_is_not_told_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, running = Gate(), threading.Event()
    looks: list[bool] = []
    done: list[str] = []

    class Lock:
        def __enter__(self) -> None:
            """Take nothing."""

        def __exit__(self, *_: object) -> None:
            done.append("unlocking")
            while len(looks) < 2:
                pass
            done.append("unlocked")

    def function() -> None:
        with Lock():
            running.set()
            while not looks:
                pass
        while True:
            pass

    def look(frame: FrameType) -> bool:
        looks.append(delicate(frame))
        while not done:
            time.sleep(0)
        return looks[-1]

    delicate = interrupts._is_delicate
    monkeypatch.setattr(interrupts, "_is_delicate", look)
    teller = told_while(gate, running)
    with pytest.raises(asyncio.CancelledError):
        gate.run(function)
    teller.join()
    assert done == ["unlocking", "unlocked"]
    assert looks[0] is False


@pytest.mark.parametrize(
    ("late", "name", "delicate"),
    [
        (True, "notify", True),
        (True, "wait", False),
        (True, "join", False),
        (False, "notify", False),
    ],
)
def test_where_python_looks_late_a_thread_under_a_lock_is_not_told(
    monkeypatch: pytest.MonkeyPatch, late: bool, name: str, delicate: bool
) -> None:
    monkeypatch.setattr(interrupts, "_LATE", late)
    module = {"__name__": "threading", "here": sys._getframe}
    exec(f"def {name}(): return here()", module)
    assert interrupts._is_delicate(module[name]()) is delicate  # type: ignore[operator]


@pytest.mark.parametrize("depth", [0, 1])
def test_a_thread_in_a_loop_at_the_end_of_a_try_is_told_inside_of_it(depth: int) -> None:
    """Python 3.13 leaves the jump back out of the ``try``, and looks for exceptions there."""
    until = time.monotonic() + 60

    def early() -> bool:
        return time.monotonic() < until

    def function() -> None:
        try:
            running.set()
            if depth:
                while early():
                    pass
            else:
                while time.monotonic() < until:
                    pass
        finally:
            cleaned.append(depth)

    cleaned: list[int] = []
    for number in range(1, 41):
        gate, running = Gate(), threading.Event()
        teller = told_while(gate, running)
        with pytest.raises(asyncio.CancelledError):
            gate.run(function)
        teller.join()
        assert len(cleaned) == number


def test_a_thread_in_a_loop_that_looks_nowhere_else_is_told_nevertheless() -> None:
    gate, running, waits = Gate(), threading.Event(), True

    def function() -> None:
        with contextlib.suppress(ValueError):
            running.set()
            while waits:
                pass

    teller = told_while(gate, running)
    with pytest.raises(asyncio.CancelledError):
        gate.run(function)
    teller.join()


@pytest.mark.parametrize("rounds", [4000])
def test_the_exception_is_never_raised_outside_of_the_gate(rounds: int) -> None:
    """A thread goes in and out as fast as it can, and is told at any point of that."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    caught: list[str] = []
    current: list[Gate] = [Gate()]
    over = threading.Event()

    def work() -> None:
        try:
            for number in range(rounds):
                current[0] = gate = Gate()
                inside = False
                try:
                    gate.run(shielded, sorted, [3, 1, number % 7])
                except asyncio.CancelledError:
                    inside = True
                for _ in range(number % 13):
                    inside = inside or False
        except BaseException as error:  # it came where nothing of ours is prepared for it
            caught.append(repr(error))
        finally:
            over.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        while not over.is_set():
            current[0].tell()
    finally:
        thread.join()
        sys.setswitchinterval(before)
    assert caught == []


TRACED = """
import asyncio, faulthandler, sys, threading, time
from agentix_runtime.worker.interrupts import Gate

def tell_one(gate, run):
    thread = threading.Thread(target=gate.run, args=(run,))
    thread.start()
    assert entered.wait(10)
    while not gate.tell():
        time.sleep(0.001)
        leave.set()
    thread.join()

def hears():
    entered.set()
    try:
        while True:
            time.sleep(0.001)
    except asyncio.CancelledError:
        pass

def ends():  # without a look: it is asked while it waits in C, and is gone
    entered.set()
    leave.wait()

for run in (hears, ends):
    entered, leave = threading.Event(), threading.Event()
    tell_one(Gate(), run)
faulthandler.dump_traceback_later(20, exit=True)
sys.settrace(lambda frame, event, argument: None)
(lambda: None)()
sys.settrace(None)
"""


def test_after_a_cancellation_the_worker_can_be_traced() -> None:
    subprocess.run([sys.executable, "-c", TRACED], check=True, timeout=60)


async def test_a_record_reaches_the_server_while_the_loop_is_blocked() -> None:
    async with spawned() as (server, _):
        await server.value(server.call("far::anoop"))
        server.call("hard::logs_and_blocks", 1.0)
        await server.until(lambda: "Record" in server.order)
        assert not server.order[-1].endswith("Value")
        await server.until(lambda: server.order[-1].endswith("Value"))
