"""The cache: where it is, whether it can be written, how much is in it and how much fits."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.findings import Finding
from agentix.folders import cache_root

if TYPE_CHECKING:
    from collections.abc import Iterable

_TIGHT = 5 * 10**9  # bytes; a bundle with a large framework, its image, and room to work
_FULL = 10**9
_COUNTING = 3.0  # seconds; a large cache is only counted so far
# On these a rename, a lock or a hard link may not be what it is elsewhere.
_REMOTE = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "ceph", "lustre")
_MOUNTS = Path("/proc/self/mountinfo")


def cache() -> Iterable[Finding]:
    """Look at the cache folder; nothing is written."""
    root = cache_root()
    there = next(folder for folder in (root, *root.parents) if folder.exists())
    if not there.is_dir():
        yield Finding("problem", f"{there} is not a folder", "set AGENTIX_CACHE_DIR to one")
        return
    if not os.access(there, os.W_OK | os.X_OK):
        advice = "set AGENTIX_CACHE_DIR to a folder that you can write to"
        yield Finding("problem", f"{root} cannot be written", advice)
        return
    system = _file_system(there)
    free = shutil.disk_usage(there).free
    room = f"{_amount(free)} free on {system}"
    held = _held(root) if there == root else "nothing yet"
    text = f"{root}: {held}, {room}"
    advice = "make room, with `agentix cache gc` for one, or set AGENTIX_CACHE_DIR to another disk"
    if free < _FULL:
        yield Finding("problem", text, advice)
    elif free < _TIGHT:
        yield Finding("note", text, advice)
    elif system.startswith(_REMOTE):
        yield Finding("note", text, "a local disk is faster: set AGENTIX_CACHE_DIR to one")
    else:
        yield Finding("ok", text)


def _held(root: Path) -> str:
    """Return how much is in the folder, each file once however many names it has."""
    total, seen, deadline = 0, set[tuple[int, int]](), time.monotonic() + _COUNTING
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                status = os.lstat(f"{folder}/{name}")
            except OSError:
                continue  # just removed
            if status.st_nlink > 1:
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
            total += status.st_blocks * 512
        if time.monotonic() > deadline:
            return f"more than {_amount(total)}"
    return _amount(total)


def _file_system(folder: Path) -> str:
    """Return the type of the file system that *folder* is on, such as ``ext4``."""
    kind, longest = "an unknown file system", 0
    for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        left, _, right = line.partition(" - ")
        place = Path(left.split()[4])
        # Of those in one place the last one is seen.
        if (place == folder or place in folder.parents) and len(place.parts) >= longest:
            kind, longest = right.split()[0], len(place.parts)
    return kind


def _amount(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
