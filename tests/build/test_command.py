from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import eventually, eventually_async
from procfs import runs

from agentix.build import sources
from agentix.build.command import Command
from agentix.build.debian import archive, signature
from agentix.errors import AgentixError, LockError, ProjectError

if TYPE_CHECKING:
    from collections.abc import Callable

HANG = "echo warming up >&2; echo half a word; sleep 1000 & echo $! > {0}; wait"


def put_program(folder: Path, name: str, pid: Path) -> None:
    """Make a program of that name which never ends, nor does what it starts."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{HANG.format(pid)}\n")
    (folder / name).chmod(0o755)


def ended(pid: Path) -> bool:
    """Say whether the process, whose number is in the file *pid*, is no longer at work."""
    return not (begun(pid) and runs(int(pid.read_text())))


def begun(pid: Path) -> bool:
    return pid.exists() and pid.read_text().endswith("\n")


def hanging(pid: Path, timeout: float) -> Command:
    return Command(["/bin/sh", "-c", HANG.format(pid)], raises=LockError, timeout=timeout)


async def test_output_errors_and_status_are_told_however_long() -> None:
    script = (
        "import sys; sys.stderr.write('a\\nb \\x1b[1m\\n\\n'); print(input() * 100000); sys.exit(3)"
    )
    command = Command([sys.executable, "-c", script], raises=LockError, timeout=60, stdin="abc\n")
    for found in (command.run(), await command.run_aside()):
        assert (found.status, found.output) == (3, b"abc" * 100000 + b"\n")
        assert found.reason == "b \\x1b[1m"


def test_a_program_gets_a_folder_for_temporary_files_that_can_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    monkeypatch.setattr("tempfile.tempdir", None)  # what Python has found before
    command = Command(["/bin/sh", "-c", 'cd "$TMPDIR"'], raises=LockError, timeout=60)
    assert command.run().status == 0


async def test_what_takes_too_long_ends_with_all_that_it_started_and_its_last_words(
    tmp_path: Path,
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with pytest.raises(LockError, match=r"^sh took more than 1 s .* it last said: warming up$"):
        hanging(one, 1).run()
    with pytest.raises(LockError, match=r"^sh took more than 1 s .* it last said: warming up$"):
        await hanging(two, 1).run_aside()
    eventually(lambda: ended(one) and ended(two), "both end", within=20)


async def test_a_cancelled_wait_ends_the_program(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    task = asyncio.create_task(hanging(pid, 600).run_aside())
    await eventually_async(lambda: begun(pid), "the program runs", within=20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    eventually(lambda: ended(pid), "the program ends", within=20)


def test_an_interrupt_ends_the_program(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"""
        from agentix.build.command import Command
        from agentix.errors import LockError
        words = ["/bin/sh", "-c", {HANG.format(pid)!r}]
        Command(words, raises=LockError, timeout=600).run()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.DEVNULL
    ) as process:
        eventually(lambda: begun(pid), "the program runs", within=20)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT
    eventually(lambda: ended(pid), "the program ends", within=20)


def list_sources(folder: Path) -> object:
    return sources.source_files(folder)


def verify(folder: Path) -> object:
    sample = Path(__file__).parent / "debian/archive"
    signed = (sample / "dists" / "sample" / "InRelease").read_bytes()
    return asyncio.run(signature.verify(signed, sample / "keyring.gpg", "somewhere"))


def find_mirror(folder: Path) -> object:
    return asyncio.run(archive.find_mirror())


@pytest.mark.parametrize(
    ("name", "module", "limit", "use", "error"),
    [
        ("git", sources, "_TIMEOUT", list_sources, ProjectError),
        ("gpgv", signature, "_TIMEOUT", verify, LockError),
        ("apt-get", archive, "_PATIENCE", find_mirror, LockError),
    ],
)
def test_none_of_the_programs_is_waited_for_forever(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    module: object,
    limit: str,
    use: Callable[[Path], object],
    error: type[AgentixError],
) -> None:
    pid = tmp_path / "pid"
    put_program(tmp_path / "programs", name, pid)
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("AGENTIX_DEBIAN_MIRROR", raising=False)
    monkeypatch.setattr(module, limit, 0.5)
    with pytest.raises(error, match=f"^{name} took more than 0.5 s and was stopped"):
        use(tmp_path)
    eventually(lambda: ended(pid), "the program ends", within=20)
