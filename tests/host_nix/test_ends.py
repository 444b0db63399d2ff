"""Ends: whatever ends a build, nothing that Nix runs outlives it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import eventually

from agentix import nix
from agentix.errors import NixError
from agentix.nix import program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 30.0


@contextlib.contextmanager
def building(file: Path, seconds: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that builds *file*, and wait until its builder sleeps for *seconds*."""
    code = f"from pathlib import Path; from agentix import nix; nix.build(Path({str(file)!r}))"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: sleepers(seconds), "the builder starts")
        yield process
    finally:
        process.kill()
        process.wait()


def sleepers(seconds: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"sleep" in words and str(seconds).encode() in words:
                found.append(int(folder.name))
    return found


@pytest.mark.nix
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_when_the_builder_of_a_bundle_dies_so_does_all_that_nix_runs(
    expression: Callable[..., Path], number: signal.Signals
) -> None:
    seconds = 1_000_000 + uuid.uuid4().int % 1_000_000
    file = expression(f"exec $busybox sleep {seconds}")
    with building(file, seconds) as process:
        process.send_signal(number)
        process.wait(PATIENCE)
        eventually(lambda: not sleepers(seconds), "the builder ends")


@pytest.mark.nix
def test_a_call_that_takes_too_long_is_ended(expression: Callable[..., Path]) -> None:
    seconds = 1_000_000 + uuid.uuid4().int % 1_000_000
    file = expression(f"exec $busybox sleep {seconds}")
    started = time.monotonic()
    with pytest.raises(NixError, match=r"nix-build did not end within 2 s and was stopped"):
        program.run(nix.find(), "nix-build", ["--no-out-link", str(file)], timeout=2)
    assert time.monotonic() - started < 2 + PATIENCE
    eventually(lambda: not sleepers(seconds), "the builder ends")
