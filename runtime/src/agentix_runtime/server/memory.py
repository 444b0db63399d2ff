"""Whether the kernel has killed for want of memory: the counters of this process's own cgroup.

They are there whichever engine has made the cgroup; where there are none, nothing is said.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

FIRST: Final = 500
"""How much more than its memory makes a worker, and what it starts, the one that is killed."""

_UNLIMITED: Final = 1 << 62
_PROC: Final = Path("/proc")


class Memory:
    """Remembers how often the kernel has killed in this cgroup, and notices when it was again."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._folder = _folder(proc / "self")
        self._killed = self._count()

    def want(self) -> str:
        """Say which limit was reached, if the kernel has killed since this was last asked."""
        killed, before = self._count(), self._killed
        self._killed = killed
        if killed <= before:
            return ""
        limit = self._limit()
        where = f"the sandbox's limit is {_size(limit)}" if limit else "the machine has no more"
        return f"out of memory, {where}"

    def _count(self) -> int:
        for name in ("memory.oom_control", "memory.events"):
            for line in self._read(name).splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def _limit(self) -> int | None:
        for name in ("memory.limit_in_bytes", "memory.max"):
            text = self._read(name).strip()
            if text.isdecimal() and int(text) < _UNLIMITED:
                return int(text)
        return None

    def _read(self, name: str) -> str:
        with contextlib.suppress(OSError):
            if self._folder is not None:
                return (self._folder / name).read_text()
        return ""


def is_killed_first(pid: int) -> None:
    """Have the kernel kill this process and what it starts rather than the server."""
    with contextlib.suppress(OSError, ValueError):
        score = _PROC / str(pid) / "oom_score_adj"
        if int(score.read_text()) < FIRST:
            score.write_text(str(FIRST))


def _folder(process: Path) -> Path | None:
    """Return the folder of the cgroup that counts this process's memory, if it can be seen."""
    try:
        groups = [line.split(":", 2) for line in _lines(process / "cgroup")]
        mounts = [line.split(" - ") for line in _lines(process / "mountinfo")]
    except OSError:
        return None
    # Where both versions are in use, the older has the memory.
    for kind, wanted in (("cgroup", "memory"), ("cgroup2", "")):
        paths = [path for _, names, path in groups if wanted in names.split(",")]
        for where, what in mounts:
            if paths and what.split()[0] == kind and wanted in ("", *what.split()[-1].split(",")):
                root, point = (_plain(word) for word in where.split()[3:5])
                return Path(point, _below(root, paths[0]))
    return None


def _lines(file: Path) -> list[str]:
    # What is mounted may be called by any bytes, and only newlines end a line.
    return os.fsdecode(file.read_bytes()).split("\n")[:-1]


def _below(root: str, path: str) -> str:
    """Return where *path* is as seen from *root*, which is all that is mounted."""
    inside = path == root or path.startswith(f"{root.rstrip('/')}/")
    return path[len(root) :].strip("/") if inside else ""


def _plain(word: str) -> str:
    """Undo what the kernel does to spaces and their like."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def _size(number: int) -> str:
    return f"{number / (1 << 20):.4g} MiB"
