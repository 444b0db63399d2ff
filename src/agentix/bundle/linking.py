"""A store path a second time, without a second copy of its bytes: the same files in new folders.

Hard links rather than reflinks: they exist on every file system of Linux, cost no inode, and what
is shared is in memory once, however many bundles run from it. Nobody may write to the files.
Where the kernel refuses one (a file with as many links as it can have, or of another user), that
file is copied; such a copy shares its blocks on file systems that can do so.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from agentix.bundle.tree import Kind, walk

if TYPE_CHECKING:
    from pathlib import Path

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TIME = (1_000_000_000, 1_000_000_000)  # as everything in a cache has it
_MOST = 1 << 30
_REFUSALS = {
    errno.EMLINK,
    errno.EPERM,
    errno.EACCES,
    errno.EXDEV,
    errno.ENOTSUP,
    errno.ENOSYS,
}


def link_tree(source: Path, target: Path, *, copy: bool) -> bool:
    """Make *target* the same file, link or folder as *source*, with the same files in it.

    With *copy*, what cannot be linked is copied; otherwise this returns False as soon as the file
    system refuses a link, and what was made of *target* is worthless. Links are not followed.
    """
    above = os.open(source.parent, _OPEN), os.open(target.parent, _OPEN)
    try:
        return _place(source.name, target.name, above, copy=copy)
    finally:
        _close(above)


def same_files(one: Path, other: Path) -> bool:
    """Tell whether two trees are the same files under the same names: changing one changes both."""
    return _numbers(one) == _numbers(other)


def _numbers(tree: Path) -> list[tuple[bytes, int]]:
    return [
        (b"/".join(node.parts), 0 if node.kind is Kind.DIRECTORY else os.lstat(node.path).st_ino)
        for node in walk(tree)
    ]


def _place(name: str, new: str, above: tuple[int, int], *, copy: bool) -> bool:
    try:
        inside = os.open(name, _OPEN, dir_fd=above[0])
    except OSError as error:
        if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
            raise
        return _link(name, new, above, copy=copy)
    os.close(inside)
    return _folder(name, new, above, copy=copy)


def _folder(name: str, new: str, above: tuple[int, int], *, copy: bool) -> bool:
    os.mkdir(new, 0o755, dir_fd=above[1])
    os.chmod(new, 0o755, dir_fd=above[1])  # noqa: S103 - whatever the umask
    source = os.open(name, _OPEN, dir_fd=above[0])
    try:
        here = source, os.open(new, _OPEN, dir_fd=above[1])
    except BaseException:
        os.close(source)
        raise
    try:
        with os.scandir(source) as scan:
            entries = list(scan)
        for entry in entries:
            place = _folder if entry.is_dir(follow_symlinks=False) else _link
            if not place(entry.name, entry.name, here, copy=copy):
                return False
        os.utime(here[1], ns=_TIME)
    finally:
        _close(here)
    return True


def _link(name: str, new: str, above: tuple[int, int], *, copy: bool) -> bool:
    source, target = above
    try:
        os.link(name, new, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        if copy:
            _copy(name, new, source, target)
        return copy
    return True


def _copy(name: str, new: str, source: int, target: int) -> None:
    try:
        read = os.open(name, _READ, dir_fd=source)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        os.symlink(os.readlink(name, dir_fd=source), new, dir_fd=target)
        os.utime(new, ns=_TIME, dir_fd=target, follow_symlinks=False)
        return
    try:
        write = os.open(new, _CREATE, 0o600, dir_fd=target)
        try:
            while os.copy_file_range(read, write, _MOST):
                pass
            os.fchmod(write, os.fstat(read).st_mode & 0o777)
            os.utime(write, ns=_TIME)
        finally:
            os.close(write)
    finally:
        os.close(read)


def _close(descriptors: tuple[int, int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
