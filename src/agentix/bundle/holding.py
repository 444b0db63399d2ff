"""Who uses an entry of a cache: a shared lock on a file in it, which ends with its process.

One descriptor of a process holds an entry for all that use it there, and is closed with the last
of them. A process forked from it holds nothing: it opens for itself what it uses. The file's time
says when the entry was last used.
"""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agentix.bundle.waiting import lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEASE = "lease"
_PATIENCE = 30.0  # seconds that somebody may take to remove an entry, or to see that he must not
_MOMENT = 0.5  # seconds; a removal takes less
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Hold:
    """Keeps an entry from being removed, for as long as this object is referred to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._uses: list[None] = []  # one if any
        self._end = weakref.finalize(self, _let_go, descriptor, self._uses)

    def use(self) -> None:
        """Note that the entry is used, from now until this object goes."""
        self._uses[:] = [None]
        _touch(self._descriptor)

    def forget(self) -> None:
        """Close the descriptor in a forked process, which has no part in the lock."""
        if self._end.detach():
            os.close(self._descriptor)


_holds: weakref.WeakValueDictionary[tuple[int, int], Hold] = weakref.WeakValueDictionary()
_guard = threading.Lock()


def hold_new(entry: Path) -> Hold | None:
    """Make a finished *entry*, which nobody can find yet, one that can be held, and hold it."""
    path = entry / LEASE
    path.touch(0o644, exist_ok=False)
    path.chmod(0o644)  # whatever the umask
    return hold(entry)


def hold(entry: Path, *, use: bool = True) -> Hold | None:
    """Hold the *entry* of a cache; None for a folder that is in none.

    To look at it is no *use*, and changes no time. Raises FileNotFoundError when it has just been
    removed, OSError when it cannot be held.
    """
    path = entry / LEASE
    try:
        descriptor = os.open(path, os.O_RDONLY | _OPEN)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(descriptor)
        with _guard:
            found = _holds.get((status.st_dev, status.st_ino))
        if found is None:
            if not lock(descriptor, fcntl.LOCK_SH, _PATIENCE):
                raise TimeoutError(f"{entry} is being removed by another process")
            if not os.path.samestat(status, path.lstat()):
                raise FileNotFoundError(f"{entry} has just been replaced")
            with _guard:
                found = _holds.setdefault((status.st_dev, status.st_ino), Hold(descriptor))
                descriptor = -1
    finally:
        if descriptor != -1:
            os.close(descriptor)
    if use:
        found.use()
    return found


@contextmanager
def unused(entry: Path, patience: float = 0.0) -> Iterator[bool]:
    """Tell whether nobody holds *entry*, and let nobody hold it for as long as the block runs.

    *patience* is how many seconds to wait for those who hold it. As long as it is so, nobody else
    moves the entry. Raises FileNotFoundError or NotADirectoryError when there is none that can be
    held, so that nothing can be told of what may be in its place a moment later.
    """
    path = entry / LEASE
    try:
        descriptor = os.open(path, os.O_RDWR | _OPEN)
    except PermissionError:  # enough where the file system is this machine's own
        descriptor = os.open(path, os.O_RDONLY | _OPEN)
    try:
        free = lock(descriptor, fcntl.LOCK_EX, patience)
        # Another may have taken the entry meanwhile, and a third one put a new one in its place.
        yield free and os.path.samestat(os.fstat(descriptor), path.lstat())
    finally:
        os.close(descriptor)


def set_aside(entry: Path, place: Path) -> None:
    """Move what is at *entry*, if anything, to *place*, though it may be in use: it is not whole.

    Whoever is about to remove it does so first, and so never takes what comes after it.
    """
    with suppress(FileNotFoundError, NotADirectoryError), unused(entry, _MOMENT):
        _move(entry, place)
    if os.path.lexists(entry):
        _move(entry, place)


def _move(entry: Path, place: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        entry.chmod(0o700)  # moving a folder takes the right to write to it
    entry.rename(place)


def last_used(entry: Path) -> float:
    """Return when *entry* was last used, in seconds since 1970; 0.0 when that is not known."""
    for path in (entry / LEASE, entry):
        with suppress(OSError):
            return path.lstat().st_mtime
    return 0.0


def _let_go(descriptor: int, uses: list[None]) -> None:
    if uses:
        _touch(descriptor)
    os.close(descriptor)


def _touch(descriptor: int) -> None:
    with suppress(OSError):  # another user's, or on a disk that cannot be written to
        os.utime(descriptor)


def _forked() -> None:
    _guard.release()
    for held in list(_holds.values()):
        held.forget()
    _holds.clear()


os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_forked)
