"""Unpacking the layers of an image into a folder, trusting none of them.

A layer is a tar. It is applied as container engines do: what it holds replaces what is there,
``.wh.NAME`` removes NAME, ``.wh..wh..opq`` hides what lower layers have in that folder. Every name
is followed inside the folder only. Owners are not kept (a sandbox has one user), set-user-ID bits
neither (they would act on the host, and cannot in a sandbox), and device nodes are left out.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from agentix.bundle.removal import erase
from agentix.errors import ImageError
from agentix.provider.images.scoped import resolve
from agentix.provider.images.tars import Tar
from agentix.text import plain

if TYPE_CHECKING:
    import tarfile
    from pathlib import Path

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_RESERVED = ".wh..wh."
_CHUNK = 1 << 20
# What the system answers when the member is at fault, and not the disk.
_IMPOSSIBLE = frozenset(
    (
        *(errno.EEXIST, errno.EFBIG, errno.EILSEQ, errno.EINVAL, errno.EISDIR, errno.ELOOP),
        *(errno.EMLINK, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR),
    )
)


class Unpacker:
    """Applies layers to *root*, the lowest first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._parents: dict[str, Path] = {}  # where names of folders lead, until a link changes
        self._fresh: set[Path] = set()  # what the layer at hand brought, and the folders around it
        self._folder_times: dict[Path, float] = {}

    def apply(self, layer: IO[bytes]) -> None:
        """Apply *layer*, an uncompressed tar.

        Raises ImageError for a member that cannot be; tarfile's and the system's errors too.
        """
        self._fresh.clear()
        with Tar.open(fileobj=layer, mode="r|", bufsize=_CHUNK) as archive:
            while (member := archive.next()) is not None:
                try:
                    self._take(archive, member)
                except OSError as error:
                    if error.errno not in _IMPOSSIBLE:
                        raise
                    what = f"it has a member that cannot be made, {plain(member.name)!r}"
                    raise ImageError(f"{what}: {error.strerror}") from error
                archive.members = []  # type: ignore[attr-defined]  # it would keep them all

    def finish(self) -> None:
        """Give folders their times, which unpacking into them has changed."""
        for folder, time in self._folder_times.items():
            if folder.is_dir() and not folder.is_symlink():
                _set_time(folder, time)

    def _take(self, archive: Tar, member: tarfile.TarInfo) -> None:
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise ImageError(f"it has a member that leads outside, {plain(member.name)!r}")
        if not parts:
            if member.isdir():
                self._describe(self._root, member)
            return
        parent = self._parent("/".join(parts[:-1]))
        name = parts[-1]
        if name == _OPAQUE:
            self._hide(parent)
        elif name.startswith(_RESERVED):
            pass  # bookkeeping of aufs
        elif name.startswith(_WHITEOUT):
            victim = name.removeprefix(_WHITEOUT)
            if victim in ("", ".", ".."):
                raise ImageError(
                    f"it has a member that removes what it must not, {plain(member.name)!r}"
                )
            self._remove(parent / victim)
        else:
            self._make(archive, member, parent / name)

    def _make(self, archive: Tar, member: tarfile.TarInfo, path: Path) -> None:
        if member.isdir():
            if path.is_symlink() or not path.is_dir():
                self._remove(path)
                path.mkdir()
            self._describe(path, member)
        elif member.islnk():
            self._link(member, path)
        elif member.issym():
            self._remove(path)
            path.symlink_to(member.linkname)
            _set_time(path, member.mtime)
        elif member.isreg():
            self._remove(path)
            with path.open("xb") as file:
                for offset, piece in archive.pieces(member):
                    file.seek(offset)
                    file.write(piece)
                file.truncate(member.size)
                os.fchmod(file.fileno(), member.mode & 0o777 | 0o600)
            _set_time(path, member.mtime)
        elif member.isfifo():
            self._remove(path)
            os.mkfifo(path)
            path.chmod(member.mode & 0o777 | 0o600)
        elif member.isdev():
            return
        else:
            raise ImageError(f"it has a member of an unknown kind, {plain(member.name)!r}")
        while path not in self._fresh and path != self._root:
            self._fresh.add(path)
            path = path.parent

    def _describe(self, folder: Path, member: tarfile.TarInfo) -> None:
        folder.chmod(member.mode & 0o1777 | 0o700)
        self._folder_times[folder] = member.mtime

    def _link(self, member: tarfile.TarInfo, path: Path) -> None:
        if ".." in member.linkname.split("/"):
            raise ImageError(f"it has a hard link that leads outside, {plain(member.name)!r}")
        source = resolve(self._root, member.linkname, follow_last=False)
        if source == path:
            return
        kind = _kind(source)
        if kind is None or stat.S_ISDIR(kind):
            raise ImageError(f"it has a hard link to what is no file of it, {plain(member.name)!r}")
        self._remove(path)
        os.link(source, path, follow_symlinks=False)

    def _parent(self, name: str) -> Path:
        """Return the folder called *name*, made if no layer did."""
        known = self._parents.get(name)
        if known is None:
            known = resolve(self._root, name)
            missing = [folder for folder in (known, *known.parents) if not folder.exists()]
            for folder in reversed(missing):
                folder.mkdir()
                folder.chmod(0o755)
            if not known.is_dir():
                raise ImageError(f"it has members below {plain(name)!r}, which is no folder")
            self._parents[name] = known
        return known

    def _hide(self, folder: Path) -> None:
        """Remove what lower layers have in *folder*, not what this one brought already."""
        waiting = [folder]
        while waiting:
            for child in list(waiting.pop().iterdir()):
                if child not in self._fresh:
                    self._remove(child)
                elif child.is_dir() and not child.is_symlink():
                    waiting.append(child)

    def _remove(self, path: Path) -> None:
        kind = _kind(path)
        if kind is None:
            return
        erase(path)
        if stat.S_ISDIR(kind) or stat.S_ISLNK(kind):
            self._parents.clear()


def _kind(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return None


def _set_time(path: Path, time: float) -> None:
    with suppress(OverflowError, ValueError):  # a time that no file system has
        os.utime(path, (time, time), follow_symlinks=False)
