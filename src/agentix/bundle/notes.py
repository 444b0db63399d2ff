"""What a cache has noted in order to save time: losing any of it costs no more than that.

<root>/memory/    digests of tars already read
<root>/pushed/    what registries have been given, one file each
<root>/builds/    what builds have given, one file each
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_OF_FILES = "memory"
_AGEING = ("builds", "pushed")  # whose files are written anew by whoever has a use for them


def notes_size(root: Path) -> int:
    """Return how many bytes of notes are in the cache *root*."""
    total = 0
    for folder in (_OF_FILES, *_AGEING):
        for note in _notes(root / folder):
            with suppress(OSError):
                total += note.lstat().st_size
    return total


def forget(root: Path, *, older_than: float, refs: Collection[str]) -> None:
    """Remove notes that were written more than *older_than* seconds ago, and those of files.

    Those stay as long as the bundle in the file is here: it is called as one of *refs*.
    """
    now = time.time()
    for folder in _AGEING:
        for note in _notes(root / folder):
            with suppress(OSError):
                if now - note.lstat().st_mtime >= older_than:
                    note.unlink()
    for note in _notes(root / _OF_FILES):
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            if f"sha256-{json.loads(note.read_bytes())['sha256']}" not in refs:
                note.unlink()


def _notes(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from folder.iterdir()
