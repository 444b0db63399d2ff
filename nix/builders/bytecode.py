"""Byte-compile a tree of modules, the same way on every machine.

The files are unchecked: nothing in a store path changes, so Python need not look at the source.
What marshal writes depends on which strings are already shared in the process, so each chunk of
files is compiled by a fresh fork of the same parent, however many run at once.
"""

from __future__ import annotations

import contextlib
import os
import py_compile
import warnings
from pathlib import Path

CHUNK = 48


def compile_tree(root: Path, shown: str = "") -> None:
    """Compile every module below *root*; tracebacks name *shown* plus its relative path.

    What is not valid Python for this interpreter (templates, other versions' code) is left out.
    """
    files = sorted(
        f"{folder}/{name}"
        for folder, _, names in os.walk(root)
        for name in names
        if name.endswith(".py")
    )
    chunks = [files[start : start + CHUNK] for start in range(0, len(files), CHUNK)]
    limit = len(os.sched_getaffinity(0))
    running: set[int] = set()
    while chunks or running:
        if chunks and len(running) < limit:
            chunk = chunks.pop(0)
            pid = os.fork()
            if pid == 0:
                _compile_chunk(chunk, str(root), shown)
            running.add(pid)
        else:
            pid, status = os.wait()
            running.discard(pid)
            if status:
                raise RuntimeError(f"compiling the modules of {root} ended with status {status}")


def _compile_chunk(files: list[str], root: str, shown: str) -> None:
    status = 1
    try:
        warnings.simplefilter("ignore")
        for file in files:
            # Links lead into files that are compiled where they are.
            if not Path(file).is_symlink():
                _compile(file, shown + os.path.relpath(file, root))
        status = 0
    finally:
        os._exit(status)


def _compile(file: str, shown: str) -> None:
    with contextlib.suppress(py_compile.PyCompileError):
        py_compile.compile(
            file,
            dfile=shown,
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
