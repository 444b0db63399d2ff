"""Asking a backend for the version that a pyproject.toml leaves to it."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.build import uv
from agentix.errors import LockError

if TYPE_CHECKING:
    from agentix.build.project import Backend

# PEP 517's hook, called as a build front end would: in the source tree, isolated from it.
_ASK = """
import contextlib, email, functools, importlib, os, sys, tempfile
entry, *sys.path[:0] = sys.argv[1:]
module, _, attribute = entry.partition(":")
backend = importlib.import_module(module)
backend = functools.reduce(getattr, filter(None, attribute.split(".")), backend)
with tempfile.TemporaryDirectory() as folder:
    with contextlib.redirect_stdout(sys.stderr):
        name = backend.prepare_metadata_for_build_wheel(folder)
    with open(os.path.join(folder, name, "METADATA"), encoding="utf-8") as file:
        print(email.message_from_file(file)["Version"])
"""


async def ask_version(name: str, root: Path, backend: Backend) -> str:
    """Return the version of the project *name* in *root*, as its backend computes it.

    Raises LockError with the backend's own words when it cannot.
    """
    path = [str(root / folder) for folder in backend.path]
    requirements = [word for needed in backend.requires for word in ("--with", needed)]
    with tempfile.TemporaryDirectory(prefix="agentix-") as scratch:
        environment = await asyncio.to_thread(uv.divert_egg_info, Path(scratch))
        try:
            output = await uv.run(
                *("run", "--no-project", "--isolated", "--quiet", "--python", sys.executable),
                *requirements,
                *("python", "-I", "-c", _ASK, backend.entry, *path),
                cwd=root,
                environment=environment,
            )
        except uv.UvFailed as error:
            raise LockError(
                f"cannot tell the version of {name}: its backend {backend.entry} failed: {error}"
            ) from error
    version = output.strip()
    if not version:
        raise LockError(f"the backend {backend.entry} of {name} gives it no version")
    return version
