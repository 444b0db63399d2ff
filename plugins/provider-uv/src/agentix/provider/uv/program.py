"""Running uv: found, with the user's own settings for indexes, and ended when nobody waits."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import ProviderError
from agentix.provider.kit import OutputTail, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentix.provider.kit import Stop

# They would have uv work on some other environment, or run other code in this one.
_DROPPED = ("VIRTUAL_ENV", "CONDA_PREFIX", "UV_PYTHON", "UV_PROJECT_ENVIRONMENT")
_LONGEST = 600
_DRAWING = dict.fromkeys(map(ord, "│╰─▶\N{MULTIPLICATION SIGN}"), " ")


def find_program(chosen: Path | None = None) -> Path:
    """Return *chosen*, the uv that came with Agentix, or the one on PATH.

    Raises ProviderError when there is none.
    """
    if chosen is not None:
        if not os.access(chosen, os.X_OK):
            raise ProviderError(f"{chosen} is no program; name another uv, or leave program out")
        return chosen
    try:
        from uv import find_uv_bin

        return Path(find_uv_bin())
    except (ImportError, FileNotFoundError):
        pass
    found = shutil.which("uv")
    if found is None:
        raise ProviderError(
            "uv is not installed, or not on PATH; install it next to agentix: pip install uv"
        )
    return Path(found)


@dataclass(frozen=True, slots=True)
class Uv:
    """Runs *program* until it ends, or *stop* says so."""

    program: Path
    stop: Stop

    def run(self, words: Sequence[str], *, what: str) -> None:
        """Run it; ProviderError saying that *what* cannot be done, and why. Blocks."""
        environment = {n: v for n, v in os.environ.items() if not n.startswith("PYTHON")}
        for name in _DROPPED:
            environment.pop(name, None)
        tail = OutputTail()
        try:
            process = subprocess.Popen(
                [str(self.program), "--no-progress", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment | {"NO_COLOR": "1"},
                start_new_session=True,  # Ctrl-C is for the host program
                cwd="/",  # no project's settings, whatever folder this runs in
            )
        except OSError as error:
            raise ProviderError(f"uv ({self.program}) cannot be started: {error}") from error
        with process:
            try:
                self._read(process, tail)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode:
            raise ProviderError(f"{what}: uv says: {_complaint(tail.text())}")

    def _read(self, process: subprocess.Popen[bytes], tail: OutputTail) -> None:
        assert process.stdout is not None  # noqa: S101
        while True:
            ready, _, _ = select.select([process.stdout], [], [], 0.1)
            self.stop.check()
            if ready:
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    return
                tail.feed(data)


def _complaint(output: str) -> str:
    """Return what uv complains of, on one line and without its drawing."""
    _, found, rest = output.rpartition("error:")
    lines = (rest if found else output).splitlines()
    words = " ".join(line.translate(_DRAWING).strip() for line in lines).split()
    return plain(" ".join(words), _LONGEST) or "nothing"
