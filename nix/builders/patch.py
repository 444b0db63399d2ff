"""Set the search path, and the loader, of a program or library: in place where it is large."""

from __future__ import annotations

import contextlib
import struct
import subprocess
from typing import TYPE_CHECKING

import graft

if TYPE_CHECKING:
    from pathlib import Path

LARGE = 128 * 1024 * 1024  # bytes; patchelf takes twice as many


def patch(path: Path, search: str, loader: str | None, patchelf: str) -> None:
    """Give *path* the DT_RPATH *search*, and the *loader* if it is a program.

    *patchelf* is the folder of that program. CalledProcessError when the file is damaged.
    """
    if path.stat().st_size > LARGE:
        # Nothing of a damaged file has changed; patchelf says what is wrong with it.
        with contextlib.suppress(KeyError, StopIteration, ValueError, struct.error):
            if graft.graft(path, loader or "", search):
                return
    command = ["--force-rpath", "--set-rpath", search]
    if loader is not None:
        command += ["--set-interpreter", loader]
    subprocess.run([f"{patchelf}/bin/patchelf", *command, str(path)], check=True)
