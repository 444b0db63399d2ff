"""Finding an Apptainer that can do what sandboxes need, and what it gets of the environment."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from agentix.errors import ProviderError

OLDEST = (1, 2)  # the first release that does without root and setuid for all that is asked of it
_ADVICE = "install Apptainer 1.2 or newer, or name it in ApptainerProviderConfig(program=…)"
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
# By these Apptainer finds its helpers, the user's settings, and who may limit resources.
_NEEDED = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")


def find_program(chosen: Path | None = None) -> Path:
    """Return *chosen*, or the Apptainer on PATH.

    Raises ProviderError when there is none, or it is too old or does not run.
    """
    found = chosen or shutil.which("apptainer")
    if found is None:
        raise ProviderError(f"apptainer is not installed, or not on PATH; {_ADVICE}")
    program = Path(found).absolute()
    if problem := _problem(program):
        raise ProviderError(f"{problem}; {_ADVICE}")
    return program


@functools.cache
def _problem(program: Path) -> str | None:
    """Say why *program* cannot be used, or None; it does not change while this process lives."""
    command = [str(program), "--version"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=30, env=environment(), check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not run ({error})"
    version = re.search(r"apptainer\D*(\d+)\.(\d+)", result.stdout)
    if result.returncode != 0 or version is None:
        return f"{program} does not run as an Apptainer (exit status {result.returncode})"
    if (int(version[1]), int(version[2])) < OLDEST:
        return f"{program} is version {version[1]}.{version[2]}, which is too old"
    return None


def version_of(program: Path) -> str:
    """Return the version of a *program* that :func:`find_program` gave."""
    words = [str(program), "--version"]
    result = subprocess.run(
        words, capture_output=True, text=True, timeout=30, env=environment(), check=False
    )
    return result.stdout.split()[-1]


def environment(scratch: Path | None = None) -> dict[str, str]:
    """Return the environment in which Apptainer runs; its own files go to *scratch*.

    Nothing else of the host's: Apptainer would take options from it, and give it to containers.
    """
    found = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    if scratch is not None:
        found |= dict.fromkeys(("TMPDIR", "APPTAINER_TMPDIR", "APPTAINER_CACHEDIR"), str(scratch))
    return {"PATH": _PATH} | found
