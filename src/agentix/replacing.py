"""Files that appear complete or not at all."""

from __future__ import annotations

import glob
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SUFFIX = ".part"
_FORGOTTEN = 3600.0  # seconds after which nobody is still at work on a draft


def draft_of(file: Path, key: str = "") -> Path:
    """Return a path beside *file* for what is to become it; *key* tells drafts from one another."""
    return file.with_name(f".{file.name[:200]}{key and f'.{key}'}{_SUFFIX}")


def is_draft(name: str) -> bool:
    """Say whether a file of this *name* is what a write that goes on, or was killed, has made."""
    return name.startswith(".") and name.endswith(_SUFFIX)


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Give a path beside *file*, nobody else's: what is written there becomes *file* in one step.

    When the block fails, *file* stays as it was and nothing is left beside it; what a killed
    process has left there goes away later.
    """
    _sweep(file)
    draft = draft_of(file, os.urandom(8).hex())
    try:
        yield draft
        draft.replace(file)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def _sweep(file: Path) -> None:
    with suppress(OSError):
        for draft in file.parent.glob(f".{glob.escape(file.name[:200])}.*{_SUFFIX}"):
            if draft.lstat().st_mtime < time.time() - _FORGOTTEN:
                draft.unlink()
