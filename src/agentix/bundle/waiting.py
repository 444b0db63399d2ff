"""Locks that the kernel takes back when their process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PAUSE = 0.005


def lock(descriptor: int, kind: int, patience: float) -> bool:
    """Lock an open file, shared or exclusively as *kind* says; False after *patience* seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE)
        else:
            return True


@contextmanager
def locked(path: Path, kind: int, patience: float) -> Iterator[bool]:
    """Lock the file *path*, made if need be, for as long as the block runs; tell whether it is."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        yield lock(descriptor, kind, patience)
    finally:
        os.close(descriptor)
