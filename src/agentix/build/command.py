"""Run somebody else's program (git, uv, gpgv, apt-get) to its end, and never wait for it forever.

Each gets a process group of its own: an interrupt at the terminal is ours to handle, and whatever
ends the wait also ends all that the program started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentix.errors import AgentixError


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, and how it is run."""

    words: Sequence[str]
    raises: type[AgentixError]  # when it takes more than *timeout* seconds
    timeout: float
    cwd: Path | None = None
    environment: Mapping[str, str] | None = None
    stdin: str = ""

    def run(self) -> Ended:
        """Wait for the program's end."""
        with _Streams(self) as streams:
            process = subprocess.Popen(self.words, **streams.options)
            try:
                return streams.ended(process.wait(self.timeout))
            except subprocess.TimeoutExpired:
                raise streams.too_slow() from None
            finally:
                if process.returncode is None:
                    _kill(process.pid)
                    process.wait()

    async def run_aside(self) -> Ended:
        """Wait for the program's end without holding up the event loop."""
        import asyncio  # slow, and an unchanged project needs only git

        with _Streams(self) as streams:
            process = await asyncio.create_subprocess_exec(*self.words, **streams.options)
            try:
                async with asyncio.timeout(self.timeout):
                    return streams.ended(await process.wait())
            except TimeoutError:
                raise streams.too_slow() from None
            finally:
                if process.returncode is None:
                    _kill(process.pid)
                    await process.wait()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and what it printed."""

    status: int
    output: bytes
    errors: str

    @property
    def reason(self) -> str:
        """The last thing that it said on its standard error, in one line."""
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        return plain(lines[-1]) if lines else f"it gave no reason (exit status {self.status})"


class _Streams:
    """What a program reads and prints: files, which nobody has to empty or can hold open."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._files = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as files:
            self._input, self._output, self._errors = (
                files.enter_context(tempfile.TemporaryFile()) for _ in range(3)
            )
            self._input.write(self._command.stdin.encode())
            self._input.seek(0)
            self._files = files.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @property
    def options(self) -> dict[str, Any]:
        return {
            "cwd": self._command.cwd,
            # A TMPDIR that cannot be used is Python's to notice; not every program does.
            "env": {**(self._command.environment or os.environ), "TMPDIR": tempfile.gettempdir()},
            "stdin": self._input,
            "stdout": self._output,
            "stderr": self._errors,
            "process_group": 0,
        }

    def ended(self, status: int) -> Ended:
        return Ended(status, _all(self._output), _all(self._errors).decode(errors="replace"))

    def too_slow(self) -> AgentixError:
        name, ended = Path(self._command.words[0]).name, self.ended(-signal.SIGKILL)
        said = f"; it last said: {ended.reason}" if ended.errors.strip() else ""
        return self._command.raises(
            f"{name} took more than {self._command.timeout:g} s and was stopped{said}"
        )


def _all(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):  # ended, and we have yet to hear of it
        os.killpg(group, signal.SIGKILL)
