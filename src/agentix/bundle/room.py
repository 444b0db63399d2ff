"""Whether there is room for a bundle, asked before the disk of everybody else is full."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def check_room(folder: Path, size: int) -> None:
    """Raise OSError, as a full disk does, unless *size* bytes are free where *folder* is."""
    disk = shutil.disk_usage(folder)
    if disk.total and size > disk.free:  # some file systems know nothing of their size
        raise OSError(
            errno.ENOSPC,
            f"it takes {size / 1e6:.1f} MB, and {disk.free / 1e6:.1f} MB are free there",
        )
