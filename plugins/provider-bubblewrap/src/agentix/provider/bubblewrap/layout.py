"""How a root file system is put together under a throw-away overlay: decided here, as a value.

One overlay over the whole is not always possible: the kernel refuses one over a folder that has
other file systems mounted below it, which the host's own root always has. Such a folder is made
anew in memory, and each thing in it gets a place of its own.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from agentix.errors import ImageError

# What every sandbox has of its own, in place of the image's.
OWN = frozenset(("proc", "dev", "sys", "nix"))
# On the host's root these hold sockets and secrets of others, or what engines mount and unmount
# all the time; a sandbox gets empty ones.
_PRIVATE = {
    "/run": 0o755,
    "/tmp": 0o1777,  # noqa: S108 - the sandbox's own
    "/var/lib/containerd": 0o711,
    "/var/lib/containers": 0o755,
    "/var/lib/docker": 0o710,
}
# What the kernel lays an overlay over; others (vfat, FUSE, network shares) appear read-only.
_OVERLAID = frozenset(
    [
        *("bcachefs", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "nfs", "nfs4"),
        *("overlay", "squashfs", "tmpfs", "virtiofs", "xfs", "zfs"),
    ]
)
_DEEPEST = 3  # how far down folders are made anew, to keep what is beside a mounted file system
_MOST_ENTRIES = 512


@dataclass(frozen=True, slots=True)
class Overlay:
    """*source* at *place*; writes go to memory."""

    source: str
    place: str


@dataclass(frozen=True, slots=True)
class Bind:
    """*source* at *place*, read-only; left out when it has gone meanwhile."""

    source: str
    place: str


@dataclass(frozen=True, slots=True)
class Folder:
    """An empty folder in memory."""

    place: str
    mode: int


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str
    place: str


Piece = Overlay | Bind | Folder | Link
Mounts = dict[str, str]


def mounts(table: Path = Path("/proc/self/mountinfo")) -> Mounts:
    """Return the mounted file systems: where, and of which type."""
    found = {}
    for line in table.read_bytes().decode(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        found[_unescape(before.split(" ")[4])] = after.split(" ")[0]
    return found


def lay_out(root: Path, mounted: Mounts, *, host: bool, with_nix: bool = False) -> list[Piece]:
    """Return the pieces, in the order of mounting, that make *root* a sandbox's root.

    *host* says that it is this machine's own, *with_nix* that its /nix is wanted too. Raises
    ImageError when *root* cannot be read.
    """
    private = _PRIVATE if host else {}
    here = str(root).rstrip("/")
    # A folder is made anew around a private one just as around a mounted file system.
    mounted = mounted | {f"{here}{p}": "private" for p in private if Path(f"{here}{p}").is_dir()}
    if not _has_mounts_below(str(root), mounted):
        return [Overlay(str(root), "/")]
    without = OWN - {"nix"} if with_nix else OWN
    return lay_out_folder(root, "", mounted, without=without)


def lay_out_folder(
    folder: Path, place: str, mounted: Mounts, *, without: frozenset[str]
) -> list[Piece]:
    """Return the pieces for all that is in *folder*, except what is called as in *without*.

    They belong into the folder *place* of the sandbox. Raises ImageError when *folder* cannot be
    read.
    """
    pieces: list[Piece] = []
    try:
        for entry in _entries(str(folder)):
            if entry.name not in without:
                pieces += _place(entry, place, mounted, place.count("/") + 1)
    except OSError as error:
        raise ImageError(f"image {folder} cannot be read: {error}") from error
    return pieces


def why_no_overlay(folder: Path, mounted: Mounts) -> str | None:
    """Say why the kernel would not take *folder* for an overlay; None when it would."""
    kind = _type_of(str(folder), mounted)
    if kind not in _OVERLAID:
        return f"{folder} is on a file system that takes no overlay ({kind or 'unknown'})"
    if _has_mounts_below(str(folder), mounted):
        return f"{folder} has file systems mounted below it"
    return None


def _place(entry: os.DirEntry[str], parent: str, mounted: Mounts, depth: int) -> list[Piece]:
    place = f"{parent}/{entry.name}"
    if entry.is_symlink():
        return [Link(str(Path(entry.path).readlink()), place)]
    if not entry.is_dir(follow_symlinks=False):
        return [Bind(entry.path, place)] if entry.is_file(follow_symlinks=False) else []
    if mounted.get(entry.path) == "private":
        return [Folder(place, _PRIVATE[place])]
    if not _has_mounts_below(entry.path, mounted):
        fits = _type_of(entry.path, mounted) in _OVERLAID
        return [Overlay(entry.path, place) if fits else Bind(entry.path, place)]
    try:
        children = _entries(entry.path) if depth < _DEEPEST else []
    except OSError:
        children = []  # not ours to look into
    if not 0 < len(children) <= _MOST_ENTRIES:
        return [Bind(entry.path, place)]
    mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
    pieces: list[Piece] = [Folder(place, mode & 0o1777)]
    for child in children:
        pieces += _place(child, place, mounted, depth + 1)
    return pieces


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _has_mounts_below(folder: str, mounted: Mounts) -> bool:
    prefix = f"{folder.rstrip('/')}/"
    return any(place.startswith(prefix) and place != "/" for place in mounted)


def _type_of(folder: str, mounted: Mounts) -> str:
    path = Path(folder)
    return next((mounted[str(p)] for p in (path, *path.parents) if str(p) in mounted), "")


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
