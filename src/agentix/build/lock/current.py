"""The lock of a project: looked at, written, and the one that a build goes by."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agentix.build.lock.file import LOCK_FILE, Lock, load
from agentix.build.lock.inputs import is_current
from agentix.build.project import read_project
from agentix.errors import LockError
from agentix.progress import SILENT, Progress

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

State = Literal["current", "outdated", "missing"]


def look(root: Path, *, python: str | None = None) -> tuple[State, Lock | None]:
    """Return whether the project in *root* has a lock that fits, and the lock."""
    read_project(root)  # says what is wrong with the project before anything else is wrong
    file = root / LOCK_FILE
    if not file.exists():
        return "missing", None
    lock = load(file)
    return ("current" if is_current(lock, root, python=python) else "outdated"), lock


def check_lock(root: Path, *, python: str | None = None) -> None:
    """Return if the project in *root* has a lock that fits it; LockError if not."""
    state, _ = look(root, python=python)
    if state != "current":
        raise LockError(f"{root / LOCK_FILE} is {state}; run `agentix lock` and commit the file")


@dataclass(frozen=True, slots=True)
class WrittenLock:
    """A lock on disk, and whether writing it changed anything."""

    lock: Lock
    file: Path
    changed: bool


def write_lock(
    root: Path,
    *,
    python: str | None = None,
    upgrade: bool | Collection[str] = (),
    progress: Progress = SILENT,
) -> WrittenLock:
    """Resolve the project in *root* and write its lock; *upgrade* as for ``lock_project``."""
    from agentix.build.lock.locking import lock_project

    lock = lock_project(root, python=python, upgrade=upgrade, progress=progress)
    file = root / LOCK_FILE
    try:
        return WrittenLock(lock, file, lock.save(file))
    except OSError as error:
        raise LockError(
            f"cannot write {file}: {error.strerror}; "
            "run `agentix lock` where it can be written, and keep the file"
        ) from error


def current_lock(
    root: Path, *, python: str | None = None, offline: bool = False, progress: Progress = SILENT
) -> Lock:
    """Return a lock that fits the project in *root*, written beside it when it is new.

    LockError when there is none and *offline*, or when the one there is no longer fits on a CI
    machine, which must not build something else than what was committed.
    """
    state, lock = look(root, python=python)
    if lock is not None and state == "current":
        return lock
    if offline or (state == "outdated" and os.environ.get("CI")):
        why = "offline nothing is resolved" if offline else "CI builds only what is locked"
        raise LockError(
            f"the {LOCK_FILE} of {root} is {state}, and {why}; run `agentix lock` and keep the file"
        )
    return write_lock(root, python=python, progress=progress).lock
