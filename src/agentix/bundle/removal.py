"""Removing a tree that others have filled, however deep, long or closed they made it.

What a sandbox or an image leaves can be deeper than a path can say, and than functions can call
one another. So nothing here descends: a folder in a folder is moved to the top, and emptied there.
"""

from __future__ import annotations

import itertools
import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def remove(path: Path) -> None:
    """Remove the tree *path* as far as that is possible."""
    with suppress(OSError):
        erase(path)


def erase(path: Path) -> None:
    """Remove the tree *path*, if it is there, also one with folders that deny writing.

    Links are not followed. Raises OSError when something stays.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        path.unlink()
        return
    top = _opened(os.fspath(path))
    try:
        _clear(top)
    finally:
        os.close(top)
    path.rmdir()


def _clear(top: int) -> None:
    """Remove everything in the folder *top*."""
    prefix, numbers = secrets.token_hex(8), itertools.count()  # names that are nobody else's
    folders = _without_files(top)
    while folders:
        name = folders.pop()
        folder = _opened(name, top)
        try:
            for child in _without_files(folder):
                _open_up(child, folder)  # a folder that denies writing cannot be moved either
                folders.append(f"{prefix}-{next(numbers)}")
                os.rename(child, folders[-1], src_dir_fd=folder, dst_dir_fd=top)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=top)


def _without_files(folder: int) -> list[str]:
    """Remove all but the folders in *folder*, and return their names."""
    with os.scandir(folder) as scan:
        entries = list(scan)
    folders = []
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
        else:
            with suppress(FileNotFoundError):  # somebody else was faster
                os.unlink(entry.name, dir_fd=folder)
    return folders


def _opened(name: str, parent: int | None = None) -> int:
    _open_up(name, parent)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=parent)


def _open_up(name: str, parent: int | None) -> None:
    with suppress(PermissionError):  # another user's; it may be open all the same
        os.chmod(name, 0o700, dir_fd=parent)
