"""The sandbox's own log file: all of it, readable, bounded, and nobody's problem."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from agentix.wire import records
from agentix.wire.records import Log, Output, TraceEvent
from agentix_runtime.server import logfile
from agentix_runtime.server.journal import Journal
from agentix_runtime.server.logfile import LogFile, line_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

A_TIME = 1_700_000_000_123_456_789


@contextlib.contextmanager
def writing(folder: Path | str, name: str = "one") -> Iterator[Journal]:
    """Give a journal with a file; the file is written when this ends."""
    journal = Journal()
    file = LogFile(journal, str(folder), name)
    try:
        yield journal
    finally:
        file.close()
        assert file._thread is None or not file._thread.is_alive()


def out(text: str) -> bytes:
    return records.dump(Output(A_TIME, "stdout", text))


async def notes(journal: Journal) -> list[str]:
    _, count, payload = await journal.follow("x", journal.id, 0, 0)
    found = records.load_all(payload, count)
    return [e.message for e in found if isinstance(e, Log) and e.logger == "agentix.sandbox"]


async def told(journal: Journal) -> str:
    async with asyncio.timeout(10):
        while not (found := await notes(journal)):
            await asyncio.sleep(0.005)
    [text] = found
    return text


def test_lines_are_readable_and_harmless() -> None:
    record = Log(A_TIME, logging.INFO, "a.b", "two\nlines\x1b[2J", process=7, exception="Oops")
    assert line_of(records.dump(record)) == (
        "2023-11-14T22:13:20.123Z INFO     a.b[7] two\n    lines\\x1b[2J\n    Oops\n"
    )
    assert line_of(out("x")) == "2023-11-14T22:13:20.123Z -        stdout x\n"
    assert line_of(records.dump(TraceEvent("end", "a", "b", 1, 2, {}))) == ""
    assert line_of(records.dump(Log((1 << 64) - 1, 10, "a", "b"))).endswith("a[0] b\n")
    assert line_of(b"\xff") == ""


async def test_all_records_are_written_in_order(tmp_path: Path) -> None:
    with writing(tmp_path / "new" / "folder") as journal:
        for number in range(5000):
            journal.append(out(f"line {number}"))
            if number % 100 == 0:
                journal.append(records.dump(TraceEvent("end", "a", "b", 1, 2, {})))
    file = tmp_path / "new/folder/sandbox-one.log"
    found = file.read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in found] == [str(n) for n in range(5000)]
    assert file.stat().st_mode & 0o777 == 0o600


async def test_nothing_is_made_before_there_is_something_to_write(tmp_path: Path) -> None:
    with writing(tmp_path / "logs"):
        pass
    assert not (tmp_path / "logs").exists()


async def test_a_second_run_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with writing(tmp_path) as journal:
            journal.append(out(text))
    lines = (tmp_path / "sandbox-one.log").read_text().splitlines()
    assert [line.split()[-1] for line in lines] == ["first", "second"]


async def test_a_file_that_is_full_makes_room_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfile, "_MOST_WRITTEN", 100_000)
    with writing(tmp_path) as journal:
        for number in range(10_000):
            journal.append(out(f"line {number}"))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["sandbox-one.log", "sandbox-one.log.1"]
    lines = "".join((tmp_path / name).read_text() for name in reversed(names)).splitlines()
    numbers = [int(line.rpartition(" ")[2]) for line in lines]
    assert numbers == list(range(numbers[0], 10_000)), "what is kept is the end, without a gap"
    assert all(path.stat().st_size < 120_000 for path in tmp_path.iterdir())


async def test_a_file_that_was_taken_away_is_made_again(tmp_path: Path) -> None:
    file = tmp_path / "sandbox-one.log"
    with writing(tmp_path) as journal:
        journal.append(out("before"))
        async with asyncio.timeout(10):
            while not (file.exists() and file.read_text()):
                await asyncio.sleep(0.005)
        file.rename(tmp_path / "taken")
        journal.append(out("after"))
    assert file.read_text().endswith("after\n")
    assert "after" not in (tmp_path / "taken").read_text()


@pytest.mark.parametrize("name", ["../../etc/x", "a b/c", "", "x" * 500, ".."])
async def test_a_name_cannot_lead_elsewhere(name: str, tmp_path: Path) -> None:
    with writing(tmp_path / "logs", name) as journal:
        journal.append(out("x"))
    [file] = (tmp_path / "logs").iterdir()
    assert file.name.startswith("sandbox-")
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def hard_link(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def fifo(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, victim: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("trap", [link, hard_link, fifo, folder])
async def test_what_lies_in_its_place_is_not_written_to(trap: object, tmp_path: Path) -> None:
    assert callable(trap)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    logs = tmp_path / "logs"
    logs.mkdir()
    trap(logs / "sandbox-one.log", victim)
    with writing(logs) as journal:
        journal.append(out("x"))
        assert "sandbox-one.log" in await told(journal)
    assert victim.read_text() == "precious"


async def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "elsewhere")
    with writing(tmp_path / "logs") as journal:
        journal.append(out("x"))
        await told(journal)
    assert not list((tmp_path / "elsewhere").iterdir())


async def test_the_shared_default_is_used_only_if_nobody_else_can_write_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = tmp_path / "agentix"
    monkeypatch.setattr(logfile, "_DEFAULT", str(default))
    default.mkdir()
    default.chmod(0o777)
    with writing(default) as journal:
        journal.append(out("x"))
        assert "open to other users" in await told(journal)
    assert not list(default.iterdir())
    default.chmod(0o755)
    with writing(default) as journal:
        journal.append(out("x"))
    assert [path.name for path in default.iterdir()] == ["sandbox-one.log"]


async def test_where_the_image_has_no_tmp_it_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfile, "_DEFAULT", str(tmp_path / "tmp/agentix"))
    with writing(tmp_path / "tmp/agentix") as journal:
        journal.append(out("x"))
        await told(journal)
    assert not list(tmp_path.iterdir())


async def test_trouble_is_told_once_and_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfile, "_AGAIN", 0.01)
    (tmp_path / "file").write_text("")
    with writing(tmp_path / "file" / "logs") as journal:
        for _ in range(20):
            journal.append(out("x"))
            await asyncio.sleep(0.005)
        assert "AGENTIX_LOG_DIR" in await told(journal)


async def test_a_disk_that_was_full_for_a_while_leaves_a_counted_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfile, "_AGAIN", 0.01)
    full = True
    write = os.write

    def writes(fd: int, data: bytes) -> int:
        if full:
            write(fd, data[:20])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(os, "write", writes)
    with writing(tmp_path) as journal:
        journal.append(out("lost"))
        assert "No space left" in await told(journal)
        full = False
        journal.append(out("kept"))
    lines = (tmp_path / "sandbox-one.log").read_text().splitlines()
    assert any("records are missing here" in line for line in lines)
    assert lines[-1].endswith("kept")
    assert all(line.startswith("20") for line in lines), "a torn line does not spoil the next"


async def test_a_disk_that_stands_still_costs_a_bounded_amount_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = threading.Event()
    write = os.write

    def writes(fd: int, data: bytes) -> int:
        stuck.wait(30)
        return write(fd, data)

    monkeypatch.setattr(os, "write", writes)
    monkeypatch.setattr(logfile, "_LAST_WORDS", 20)
    journal = Journal()
    file = LogFile(journal, str(tmp_path), "one")
    for number in range(200):
        journal.append(out(f"{number} " + "x" * 100_000))
    assert file._queued < 9 << 20
    stuck.set()
    file.close()
    last = (tmp_path / "sandbox-one.log").read_text().splitlines()[-1]
    assert "records are missing here" in last


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a file system")
async def test_a_real_disk_that_is_full_or_read_only(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        with writing(disk) as journal:
            for _ in range(100):
                journal.append(out("x" * 2000))
            assert "No space left" in await told(journal)
        (disk / "sandbox-one.log").unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, capture_output=True)
        with writing(disk) as journal:
            journal.append(out("x"))
            assert "Read-only" in await told(journal)
    finally:
        subprocess.run(["umount", str(disk)], check=True, capture_output=True)


async def test_the_environment_says_where_or_that_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTIX_LOG_DIR", "")
    assert LogFile.of(Journal(), "one") is None
    monkeypatch.setenv("AGENTIX_LOG_DIR", str(tmp_path))
    journal = Journal()
    file = LogFile.of(journal, "one")
    assert file is not None
    journal.append(out("x"))
    file.close()
    assert (tmp_path / "sandbox-one.log").exists()


async def test_where_the_environment_says_nothing_whoever_started_the_runtime_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENTIX_LOG_DIR", raising=False)
    journal = Journal()
    file = LogFile.of(journal, "one", str(tmp_path / "logs"))
    assert file is not None
    journal.append(out("x"))
    file.close()
    assert (tmp_path / "logs/sandbox-one.log").exists()
