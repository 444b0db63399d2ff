"""Run one of Nix's programs to its end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from agentix.errors import NixError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from agentix.nix.installation import Nix

_GRACE = 10.0  # seconds that Nix gets to end its builders before it is killed
_TAIL = 4096


def run(
    nix: Nix,
    program: str,
    arguments: Sequence[str],
    *,
    timeout: float = 120,
    on_line: Callable[[str], None] | None = None,
    scratch: Path | None = None,
) -> str:
    """Run *program* of *nix* and return what it printed.

    Whatever interrupts the wait also ends Nix and everything it started. *on_line* gets each line
    of its standard error, *scratch* is where builders work instead of in the usual place.
    NixError when it fails or takes longer than *timeout* seconds.
    """
    command = [str(nix.programs / program), *nix.options(), *arguments]
    tail = _Tail(on_line)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*_dies_with_us(), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            env=nix.environment() | ({"TMPDIR": str(scratch)} if scratch else {}),
            process_group=0,
            encoding="utf-8",
            errors="replace",
        )
        try:
            with _Deadline(process, timeout) as deadline:
                for line in process.stderr or ():
                    tail.add(line.rstrip("\n"))
                status = process.wait()
        finally:
            _end(process)
        if deadline.passed:
            raise NixError(
                f"{program} did not end within {timeout:.0f} s and was stopped", log=tail.text
            )
        if status != 0:
            raise NixError(
                f"{program} {_brief(arguments)} failed with exit status {status}: {tail.reason}",
                returncode=status,
                log=tail.text,
            )
        output.seek(0)
        return output.read().decode()


class _Deadline:
    """End a process that is still at work when the context has lasted too long."""

    def __init__(self, process: subprocess.Popen[str], seconds: float) -> None:
        self.passed = False
        self._process = process
        # Nix ends its builders when it is asked to, and cannot when it is killed.
        self._timers = [
            threading.Timer(seconds, self._end, [signal.SIGTERM]),
            threading.Timer(seconds + _GRACE, self._end, [signal.SIGKILL]),
        ]

    def __enter__(self) -> Self:
        for timer in self._timers:
            timer.daemon = True
            timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        for timer in self._timers:
            timer.cancel()

    def _end(self, number: signal.Signals) -> None:
        self.passed = True
        _signal(self._process, number)


class _Tail:
    """The end of what a program said."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._on_line = on_line
        self.text = ""

    def add(self, line: str) -> None:
        if self._on_line is not None:
            self._on_line(line)
        self.text = f"{self.text}\n{line}"[-_TAIL:]

    @property
    def reason(self) -> str:
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error:")]
        return (errors or lines or ["it printed nothing"])[-1]


def _brief(arguments: Sequence[str]) -> str:
    text = " ".join(arguments)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _dies_with_us() -> list[str]:
    """Return the words before a command that end it when this process is killed outright."""
    setpriv = shutil.which("setpriv", path="/usr/bin:/bin")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def _end(process: subprocess.Popen[str]) -> None:
    """Make sure that nothing of *process* goes on working."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            process.wait()
    if process.stderr is not None:
        process.stderr.close()


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
