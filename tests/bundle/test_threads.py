"""Work on threads ends with its caller, and its errors are the caller's."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from agentix.bundle.lane import Lane
from agentix.bundle.pipe import pumped

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> object:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


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
