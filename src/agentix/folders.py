"""Where Agentix keeps what can be made or fetched again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from agentix.errors import FetchError


def cache_root() -> Path:
    """Return the folder for it: ``$AGENTIX_CACHE_DIR`` or the user's own. It need not exist."""
    if chosen := os.environ.get("AGENTIX_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("agentix", appauthor=False)


def cache_folder(name: str) -> Path:
    """Return the folder *name* in it, made if need be; FetchError when it cannot be."""
    folder = cache_root() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchError(
            f"cannot write the cache {folder}: {error.strerror}; {what_to_do(error)}"
        ) from error
    return folder


def what_to_do(error: OSError) -> str:
    """Return what helps when that folder cannot be written to, as the end of a message."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "free some space there, or set AGENTIX_CACHE_DIR to a folder on another disk"
    if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}:
        return "set AGENTIX_CACHE_DIR to a folder that you can write to"
    return "check that folder"
