"""Where a cache prepares an entry: a private folder that belongs to whoever holds its lock.

The kernel lets go of a lock when its process dies, however it dies. So a folder whose lock is free
was left behind by a killed deploy, and the next deploy of anything removes it.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agentix.bundle.removal import remove
from agentix.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 900.0  # seconds that another deploy of the same bundle may take
_PAUSE = 0.02


@contextmanager
def hold(
    staging: Path,
    key: str,
    *,
    patience: float = PATIENCE,
    check: Callable[[], None] = lambda: None,
) -> Iterator[Path]:
    """Hold the empty folder for *key*, alone among all threads and processes; then remove it.

    Raises BundleError when somebody else keeps it for longer than *patience* seconds; what *check*
    raises ends the wait sooner.
    """
    staging.mkdir(parents=True, exist_ok=True)
    lock = staging / f"{key}.lock"
    descriptor = acquire(lock, patience, check=check)
    if descriptor is None:
        raise BundleError(
            f"another process has been preparing the same for {patience:.0f} s;"
            f" see who holds {lock}, end it, and try again"
        )
    try:
        _sweep(staging)
        folder = staging / key
        remove(folder)
        try:
            folder.mkdir(mode=0o700)
            folder.chmod(0o700)
            yield folder
        finally:
            remove(folder)
    finally:
        # While it is still held: whoever opened this file meanwhile notices that it is gone.
        with suppress(OSError):
            lock.unlink()
        os.close(descriptor)


def _sweep(staging: Path) -> None:
    """Remove what killed deploys have left."""
    for key in {path.name.removesuffix(".lock") for path in staging.iterdir()}:
        lock = staging / f"{key}.lock"
        with suppress(OSError):
            descriptor = acquire(lock, 0)
            if descriptor is None:
                continue
            try:
                remove(staging / key)
                lock.unlink()
            finally:
                os.close(descriptor)


def acquire(
    path: Path, patience: float, mode: int = 0o600, *, check: Callable[[], None] = lambda: None
) -> int | None:
    """Open and lock the file *path*, making it if need be; None when it stays locked for too long.

    Whoever holds it may remove or rename the file: others then lock a new one. What *check* raises,
    before every attempt, ends the wait.
    """
    deadline = time.monotonic() + patience
    while True:
        check()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is(descriptor, path):
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(min(_PAUSE, patience))


def _is(descriptor: int, path: Path) -> bool:
    """Tell whether *path* is still the file that is open: its last holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
