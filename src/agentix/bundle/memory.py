"""What the cache remembers of files it has read, so that an unchanged one is not hashed again."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from agentix.replacing import replacing

if TYPE_CHECKING:
    import os
    from pathlib import Path

_SECOND = 1_000_000_000


class Memory:
    """Digests of files, by device, inode, size and both times, one small file each in a folder.

    The change time cannot be set by hand, so a file edited and dated back is noticed; one edited
    within the clock tick in which it was hashed is not, hence nothing so fresh is remembered.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, status: os.stat_result) -> str | None:
        """Return the digest of the file with that *status*, if it is known."""
        try:
            found = json.loads(self._path(status).read_bytes())
            known = found["stamp"] == _stamp(status)
            return str(found["sha256"]) if known else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def remember(self, before: os.stat_result, after: os.stat_result, digest: str) -> None:
        """Note the *digest* of a file that was read between *before* and *after*.

        That it cannot be noted is no error: the next deploy only takes longer.
        """
        if _stamp(before) != _stamp(after) or not _settled(before):
            return
        path = self._path(before)
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as draft:
                draft.write_text(json.dumps({"stamp": _stamp(before), "sha256": digest}))

    def _path(self, status: os.stat_result) -> Path:
        key = hashlib.sha256(f"{status.st_dev}:{status.st_ino}".encode()).hexdigest()
        return self._folder / key[:32]


def _stamp(status: os.stat_result) -> list[int]:
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _settled(status: os.stat_result) -> bool:
    """Tell whether a later change is sure to show in the change time."""
    coarse = status.st_ctime_ns % _SECOND == 0  # a file system that counts in seconds
    return time.time_ns() - status.st_ctime_ns > (2 * _SECOND if coarse else _SECOND // 10)
