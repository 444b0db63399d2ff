"""File systems that tests fill."""

from __future__ import annotations

import gc
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def small_disk_at(folder: Path, options: str) -> Iterator[Path]:
    """Make *folder* a file system in memory; skips the test where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    result = subprocess.run(mount, capture_output=True, text=True)
    if result.returncode != 0:
        pytest.skip(f"this machine forbids mounting: {result.stderr.strip()}")
    try:
        yield folder
    finally:
        gc.collect()  # what an error refers to may keep a bundle there open
        subprocess.run(["umount", str(folder)], check=True, timeout=60)
