"""The disks: where bundles are built and kept, how much is there, and how much more fits."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agentix import nix
from agentix.errors import NixError
from agentix.findings import Finding
from agentix.folders import cache_root
from agentix.nix.paths import STORE

if TYPE_CHECKING:
    from collections.abc import Iterable

_TIGHT = 5 * 10**9  # bytes; a bundle with a large framework, its image, and room to work
_FULL = 10**9
_COUNTING = 3.0  # seconds; a large cache is only counted so far
# On these a rename, a lock or a hard link may not be what it is elsewhere.
_REMOTE = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "ceph", "lustre")
_MOUNTS = Path("/proc/self/mountinfo")


def nix_store() -> Iterable[Finding]:
    """Look at how much fits into the Nix store, where everything is built."""
    try:
        store = nix.find().root / STORE[1:]
    except NixError:
        return  # as is said already
    yield _room(_there(store), f"{store}: ", "make room, with `nix-collect-garbage` for one")


def cache() -> Iterable[Finding]:
    """Look at the cache folder; nothing is written."""
    root = cache_root()
    there = _there(root)
    if not there.is_dir():
        yield Finding("problem", f"{there} is not a folder", "set AGENTIX_CACHE_DIR to one")
        return
    if not os.access(there, os.W_OK | os.X_OK):
        advice = "set AGENTIX_CACHE_DIR to a folder that you can write to"
        yield Finding("problem", f"{root} cannot be written", advice)
        return
    held = _held(root) if there == root else "nothing yet"
    advice = "make room, with `agentix cache gc` for one, or set AGENTIX_CACHE_DIR to another disk"
    finding = _room(there, f"{root}: {held}, ", advice)
    if finding.level == "ok" and _file_system(there).startswith(_REMOTE):
        advice = "a local disk is faster: set AGENTIX_CACHE_DIR to one"
        finding = Finding("note", finding.text, advice)
    yield finding


def _there(folder: Path) -> Path:
    """Return *folder*, or of those above it the nearest that is there and can be seen."""
    # Unlike Path.exists, this never raises: a folder that is closed to us is none that we see.
    return next(each for each in (folder, *folder.parents) if os.path.exists(each))  # noqa: PTH110


def _room(folder: Path, beginning: str, advice: str) -> Finding:
    """Say how much is free where *folder* is, and how bad that is."""
    free = shutil.disk_usage(folder).free
    text = f"{beginning}{_amount(free)} free on {_file_system(folder)}"
    if free >= _TIGHT:
        return Finding("ok", text)
    return Finding("problem" if free < _FULL else "note", text, advice)


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
