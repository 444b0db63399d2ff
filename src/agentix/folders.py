"""Where Agentix keeps what can be made or fetched again."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import FetchError

if TYPE_CHECKING:
    from collections.abc import Iterator


def cache_root() -> Path:
    """Return the folder for it: ``$AGENTIX_CACHE_DIR`` or the user's own. It need not exist.

    FetchError when there is neither.
    """
    if chosen := os.environ.get("AGENTIX_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path

    try:
        return user_cache_path("agentix", appauthor=False)
    except RuntimeError as error:  # no HOME, and no such user
        raise FetchError(
            "there is no cache, since this user has no home; set AGENTIX_CACHE_DIR to a folder"
        ) from error


def cache_folder(name: str) -> Path:
    """Return the folder *name* in it, made if need be; FetchError when it cannot be."""
    folder = cache_root() / name
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raise FetchError for what keeps the block from writing to the *folder* of the cache."""
    try:
        yield
    except OSError as error:
        raise FetchError(
            f"cannot write the cache {folder}: {error.strerror}; {what_to_do(error)}"
        ) from error


def what_to_do(error: OSError) -> str:
    """Return what helps when that folder cannot be written to, as the end of a message."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "free some space there, or set AGENTIX_CACHE_DIR to a folder on another disk"
    if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}:
        return "set AGENTIX_CACHE_DIR to a folder that you can write to"
    return "check that folder"
