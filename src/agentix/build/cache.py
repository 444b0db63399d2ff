"""Where this machine keeps what can be made or fetched again."""

from __future__ import annotations

import os
from pathlib import Path

from agentix.errors import FetchError


def cache_folder(name: str) -> Path:
    """Return the folder *name* of the user's cache; it exists and can be written.

    ``AGENTIX_CACHE_DIR`` chooses the cache; FetchError when it cannot be used.
    """
    folder = cache_root() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchError(
            f"cannot write the cache {folder}: {error.strerror}; set AGENTIX_CACHE_DIR to a folder"
        ) from error
    return folder


def cache_root() -> Path:
    """Return the user's cache of Agentix; it need not exist."""
    if chosen := os.environ.get("AGENTIX_CACHE_DIR"):
        return Path(chosen).absolute()
    import platformdirs

    return platformdirs.user_cache_path("agentix")
