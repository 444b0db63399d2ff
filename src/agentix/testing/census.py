"""What there is on this machine that a sandbox could leave behind."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentix.testing.subject import Subject

MARK = "AGENTIX_CONFORMANCE"
_PAUSE = 0.01


@dataclass(frozen=True, slots=True)
class Place:
    """Where sandboxes of one run of the suite keep their files, and how to tell their processes.

    ``mark`` is in the environment of every sandbox, and in no other process.
    """

    folder: Path
    mark: str

    def processes(self) -> dict[int, str]:
        """Return the processes of sandboxes: those marked, and those that see the folder mounted.

        Others' processes come and go on the same machine all the time.
        """
        mark, folder = f"{MARK}={self.mark}".encode(), f"{self.folder}/".encode()
        # What is mounted here is seen by everybody: then it tells nothing of anybody.
        tells = not any(self._mounts())
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with suppress(OSError):  # it has ended, or is not ours to look at
                    seen = tells and folder in _read(entry / "mountinfo")
                    if seen or mark in _read(entry / "environ"):
                        found[int(entry.name)] = _command(entry)
        return found

    def census(self, subject: Subject, *, of_this_process: bool = True) -> frozenset[str]:
        """Name everything that there is now."""
        found = {f"file {path}" for path in self._files()}
        found |= {f"mount {line}" for line in self._mounts()}
        found |= set(subject.count())
        if subject.is_local:
            found |= {f"process {pid} {command}" for pid, command in self.processes().items()}
            found |= {f"child {child}" for child in _children()}
        if of_this_process:
            found |= {f"thread {thread.name}" for thread in threading.enumerate()}
            found |= set(_descriptors())
        return frozenset(found)

    @staticmethod
    def left(
        before: frozenset[str], count: Callable[[], frozenset[str]], within: float
    ) -> list[str]:
        """Return what *count* finds beyond *before*, *within* seconds in which it may go."""
        end = time.monotonic() + within
        while (left := count() - before) and time.monotonic() < end:
            gc.collect()  # what an error's traceback holds on to
            time.sleep(_PAUSE)
        return sorted(left)

    def _files(self) -> Iterator[str]:
        """Yield the files down to where a sandbox begins: what is in there is its own affair."""
        for path in self.folder.iterdir():
            yield str(path)
            if path.name.startswith("agentix") and path.is_dir():
                yield from map(str, path.iterdir())

    def _mounts(self) -> Iterator[str]:
        folder = f"{self.folder}/"
        for line in os.fsdecode(_read(Path("/proc/self/mountinfo"))).splitlines():
            if folder in line:
                yield line


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read()


def _command(entry: Path) -> str:
    words = _read(entry / "cmdline").decode(errors="replace").split("\0")
    return " ".join(words).strip()[:200] or "(zombie)"


def _children() -> Iterator[str]:
    """Yield the processes that any thread of this one has started, zombies too."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # that thread has ended
            for pid in (task / "children").read_text().split():
                yield f"{pid} {_command(Path('/proc', pid))}"


def _descriptors() -> Iterator[str]:
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists this folder
            yield f"descriptor {entry.name} {entry.readlink()}"
