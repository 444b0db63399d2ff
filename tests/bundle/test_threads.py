"""Work on threads ends with its caller, and its errors are the caller's."""

from __future__ import annotations

import itertools
import queue
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from left_over import nothing_left

from agentix.bundle import channel, lane, pipe
from agentix.bundle.lane import Lane
from agentix.bundle.pipe import pumped

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from _typeshed import TraceFunction

TRACED = {module.__file__ for module in (channel, lane, pipe, queue, threading)}


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> object:
    with nothing_left():
        yield


def fail() -> None:
    raise ValueError("broken")


def test_jobs_run_in_order_and_are_done_when_drained() -> None:
    seen: list[int] = []
    with Lane("test") as lane:
        for number in range(100):
            lane.do(lambda number=number: seen.append(number))  # type: ignore[misc]
        lane.drain()
        assert seen == list(range(100))


def test_a_job_that_fails_fails_the_next_call_and_stops_the_rest() -> None:
    seen: list[int] = []

    def work() -> None:
        with Lane("test") as lane:
            lane.do(fail)
            with pytest.raises(ValueError, match="broken"):
                lane.drain()
            lane.do(lambda: seen.append(1))

    with pytest.raises(ValueError, match="broken"):
        work()
    assert seen == []


def test_a_job_that_fails_at_the_end_fails_the_block() -> None:
    with pytest.raises(ValueError, match="broken"), Lane("test") as lane:
        lane.do(fail)


def test_the_callers_own_error_comes_first() -> None:
    def work() -> None:
        with Lane("test") as lane:
            lane.do(fail)
            raise KeyError

    with pytest.raises(KeyError):
        work()


def test_what_one_side_writes_the_other_reads() -> None:
    def produce(write: Callable[[bytes], object]) -> None:
        for number in range(50):
            write(b"%d" % number)

    with pumped(produce) as chunks:
        assert list(chunks) == [b"%d" % number for number in range(50)]


def test_an_error_of_the_writer_is_raised_where_it_is_read() -> None:
    def produce(write: Callable[[bytes], object]) -> None:
        write(b"some")
        fail()

    with pumped(produce) as chunks:
        assert next(chunks) == b"some"
        with pytest.raises(ValueError, match="broken"):
            next(chunks)


def test_a_writer_ends_when_nobody_reads() -> None:
    def produce(write: Callable[[bytes], object]) -> None:
        while True:
            write(b"endless")

    with pumped(produce) as chunks:
        assert next(chunks) == b"endless"


def interrupted_at(step: int, work: Callable[[Callable[[], None]], None]) -> bool:
    """Do *work*, interrupted at the given step of what it does between two calls of its argument.

    Say whether it has so many steps.
    """
    left = step
    at_work = False

    def trace(frame: FrameType, event: str, argument: Any) -> TraceFunction | None:
        nonlocal left
        if frame.f_code.co_filename not in TRACED:
            return None
        frame.f_trace_opcodes = True
        left -= at_work
        if left == 0:
            raise KeyboardInterrupt
        return trace

    def begin_or_end() -> None:
        nonlocal at_work
        at_work = not at_work

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work(begin_or_end)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["lane", "pipe"])
def test_an_interrupt_at_any_step_leaves_nobody_waiting(kind: str) -> None:
    def fill(begin_or_end: Callable[[], None]) -> None:
        with Lane("test") as lane:
            begin_or_end()
            for _ in range(10):
                lane.do(bool)
            begin_or_end()

    def read(begin_or_end: Callable[[], None]) -> None:
        def produce(write: Callable[[bytes], object]) -> None:
            for _ in range(10):
                write(b"some")

        with pumped(produce) as chunks:
            begin_or_end()
            assert len(list(chunks)) == 10
            begin_or_end()

    work = {"lane": fill, "pipe": read}[kind]
    steps = next(n for n in itertools.count(1) if not interrupted_at(n, work))
    assert steps > 100
