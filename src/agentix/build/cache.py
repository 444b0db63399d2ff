"""Folders in the user's cache for what the steps of a build keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.errors import FetchError
from agentix.folders import cache_root

if TYPE_CHECKING:
    from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return the folder *name* of the cache, made if need be; FetchError when it cannot be."""
    folder = cache_root() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchError(
            f"cannot write the cache {folder}: {error.strerror}; set AGENTIX_CACHE_DIR to a folder"
        ) from error
    return folder
