"""Everything written to a worker's standard output and error becomes lines of the journal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
from typing import TYPE_CHECKING

import pytest

from agentix.wire import records
from agentix.wire.records import Log, Output
from agentix_runtime.server.capture import Capture, Lines, pipe
from agentix_runtime.server.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator


class Reader:
    """A capture with one worker's pipes, and all that has come of them."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.capture = Capture(self.journal)
        self.entries: list[records.Entry] = []
        self.journal.copies.append(self._copy)
        ours, self.out = pipe()
        theirs, self.err = pipe()
        self.outputs = self.capture.read(ours, theirs)

    def _copy(self, record: bytes) -> None:
        [entry] = records.load_all(records.prefixed(record), 1)
        assert isinstance(entry, Output | Log)
        self.entries.append(entry)

    def lines(self, stream: str = "stdout") -> list[str]:
        return [e.line for e in self.entries if isinstance(e, Output) and e.stream == stream]

    async def until(self, count: int, stream: str = "stdout") -> list[str]:
        async with asyncio.timeout(10):
            while len(self.lines(stream)) < count:
                await asyncio.sleep(0.001)
        return self.lines(stream)


@contextlib.contextmanager
def reading() -> Iterator[Reader]:
    reader = Reader()
    try:
        yield reader
    finally:
        reader.capture.close()
        for fd in (reader.out, reader.err):
            if fd >= 0:
                os.close(fd)


async def test_lines_arrive_by_themselves_and_apart() -> None:
    with reading() as reader:
        os.write(reader.out, b"one\ntwo\n")
        os.write(reader.err, b"error\n")
        assert await reader.until(2) == ["one", "two"]
        assert await reader.until(1, "stderr") == ["error"]


async def test_what_was_written_before_is_there_after_a_drain() -> None:
    with reading() as reader:
        count = 0
        with contextlib.suppress(BlockingIOError):
            os.set_blocking(reader.out, False)
            while True:
                os.write(reader.out, f"line {count}\n".encode().ljust(64, b"."))
                count += 1
        os.write(reader.out, b"") if count else None
        reader.capture.drain()
        found = "\n".join(reader.lines()).split("line ")
        assert len(found) == count + 1
        assert count > 1000


async def test_an_answer_s_mark_is_behind_all_that_was_printed_before_it() -> None:
    with reading() as reader:
        os.write(reader.out, b"one\ntwo\n")
        assert reader.journal.mark() == 2
        os.write(reader.err, b"three\n")
        reader.journal.take(records.dump(Log(1, 20, "far", "logged later")))
        assert [e.line if isinstance(e, Output) else e.message for e in reader.entries] == [  # type: ignore[union-attr]
            "one",
            "two",
            "three",
            "logged later",
        ]


async def test_a_drain_of_nothing_takes_nothing() -> None:
    with reading() as reader:
        for _ in range(3):
            reader.capture.drain()
        assert reader.entries == []


async def test_an_unfinished_line_is_given_out_once_it_rests() -> None:
    with reading() as reader:
        os.write(reader.out, b"continue? ")
        assert await reader.until(1) == ["continue? "]
        os.write(reader.out, b"\nyes\n")
        assert await reader.until(2) == ["continue? ", "yes"]


async def test_an_incomplete_character_waits_for_its_rest() -> None:
    with reading() as reader:
        os.write(reader.out, "naïve é".encode()[:-1])
        assert await reader.until(1) == ["naïve "]
        os.write(reader.out, "é".encode()[-1:] + b"!\n")
        assert await reader.until(2) == ["naïve ", "é!"]


async def test_a_worker_s_end_gives_out_what_it_left_and_its_children_go_on() -> None:
    with reading() as reader:
        os.write(reader.out, b"last words")
        reader.outputs.ended()
        assert reader.lines() == ["last words"]
        os.write(reader.out, b"child\n")
        assert await reader.until(2) == ["last words", "child"]


async def test_a_pipe_that_all_have_closed_is_let_go_of() -> None:
    with reading() as reader:
        os.write(reader.out, b"end")
        os.close(reader.out)
        reader.out = -1
        assert await reader.until(1) == ["end"]
        reader.capture.drain()
        reader.outputs.ended()
        assert reader.lines() == ["end"]


async def test_closing_takes_what_is_left() -> None:
    with reading() as reader:
        os.write(reader.out, b"a\nb")
        reader.capture.close()
        assert reader.lines() == ["a", "b"]
        reader.capture.drain()


async def test_children_that_outlive_many_workers_hold_a_bounded_number_of_pipes() -> None:
    with reading() as reader:
        kept = []
        try:
            for _ in range(40):
                out, in_out = pipe()
                err, in_err = pipe()
                kept += [in_out, in_err]
                reader.capture.read(out, err).ended()
            os.write(kept[-1], b"new\n")
            reader.capture.drain()
            assert reader.lines("stderr") == ["new"]
            with pytest.raises(BrokenPipeError):
                os.write(reader.out, b"old\n")
            notes = [e.message for e in reader.entries if isinstance(e, Log)]
            assert notes
            assert "outlived" in notes[0]
        finally:
            for fd in kept:
                os.close(fd)


async def test_children_do_not_inherit_the_server_s_ends() -> None:
    ours, theirs = pipe()
    try:
        for fd in (ours, theirs):
            assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    finally:
        os.close(ours)
        os.close(theirs)


WRITTEN = {
    "plain": (b"a\nb\n", ["a", "b"]),
    "empty lines": (b"\n\na\n\n", ["", "", "a", ""]),
    "windows": (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
    "progress": (b"\r 1%\r 2%\rdone\nnext\n", [" 1%", " 2%", "done", "next"]),
    "bad bytes": (
        b"\xff\xfe a\x80\n\xc3\n\xe2\x82\n",
        ["\\xff\\xfe a\\x80", "\\xc3", "\\xe2\\x82"],
    ),
    "every length": ("aé€😀\n".encode() * 3, ["aé€😀"] * 3),
    "surrogate": (b"\xed\xa0\x80\n", ["\\xed\\xa0\\x80"]),
    "control": (b"\x00\x1b[2J\x07\n", ["\x00\x1b[2J\x07"]),
    "unfinished": (b"a\nb", ["a", "b"]),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_lines_are_the_same_however_they_are_cut(name: str) -> None:
    data, expected = WRITTEN[name]
    for seed in range(200):
        chance = random.Random(seed)
        lines = Lines()
        found: list[str] = []
        at = 0
        while at < len(data):
            end = at + chance.randint(1, 1 + seed % 7)
            found += lines.feed(data[at:end])
            at = end
        found += lines.give(final=True)
        assert found == expected, seed


@pytest.mark.parametrize("chunk", [10_000, 1 << 20, 10 << 20])
def test_a_line_without_an_end_comes_in_pieces_of_whole_characters(chunk: int) -> None:
    data = ("€" * 1_000_000).encode() + b"\nnext\n"
    lines = Lines()
    found: list[str] = []
    for at in range(0, len(data), chunk):
        found += lines.feed(data[at : at + chunk])
    assert "".join(found[:-1]) == "€" * 1_000_000
    assert len(found) == 4
    assert found[-1] == "next"
    assert not lines.unfinished


def test_a_line_of_a_million_characters_stays_whole() -> None:
    lines = Lines()
    assert lines.feed(b"x" * 1_000_000 + b"\n") == ["x" * 1_000_000]
