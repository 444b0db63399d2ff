"""uv, the resolver, run as a program: quiet, bounded, and without a trace in the user's project."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.pylock import PylockValidationError

from agentix.build.command import Command
from agentix.build.lock.wheels import read
from agentix.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from packaging.pylock import Pylock

_TIMEOUT = 600
# Its first line and the lines that are indented further.
_TRACEBACK = re.compile(
    r"^([ \t]*)Traceback \(most recent call last\):\n(?:\1[ \t].*\n)*", re.MULTILINE
)


def find_uv() -> str:
    """Return the uv that came with agentix, or the one on PATH; LockError when there is none."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        pass
    if found := shutil.which("uv"):
        return found
    raise LockError("uv is not installed; install it next to agentix: pip install uv")


async def run(
    *arguments: str,
    cwd: Path,
    stdin: str = "",
    environment: dict[str, str] | None = None,
    timeout: float = _TIMEOUT,  # noqa: ASYNC109 - of the program
) -> str:
    """Run uv in the folder *cwd*, whose settings apply, and return what it printed.

    Raises UvFailed when uv fails, LockError when it is missing or takes more than *timeout*
    seconds.
    """
    ended = await Command(
        [find_uv(), *arguments],
        raises=LockError,
        timeout=timeout,
        cwd=cwd,
        environment=os.environ
        # Whatever the terminal is like: what uv says is taken apart line by line.
        | {"NO_COLOR": "1", "COLUMNS": "10000", "UV_PYTHON_DOWNLOADS": "never"}
        | (environment or {}),
        stdin=stdin,
    ).run_aside()
    if ended.status != 0:
        raise UvFailed(_gist(ended.errors))
    return ended.output.decode()


class UvFailed(LockError):  # noqa: N818 - reads as what happened
    """uv could not do it; the message is its reason, in one line."""


async def compile_requirements(
    sources: Sequence[str],
    *,
    cwd: Path,
    python: str,
    requirements: Sequence[str] = (),
    constraints: str = "",
    overrides: str = "",
    preferred: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> tuple[Pylock, Path]:
    """Resolve *requirements* and those of the pyproject files *sources* for every platform.

    The versions *preferred* stay where they still fit, *constraints* must hold, and *overrides*
    stand for whatever else is required of a package. Returns the lock and the folder that paths in
    it are relative to (which no longer exists).
    """
    with tempfile.TemporaryDirectory(prefix="agentix-") as name:
        scratch = await asyncio.to_thread(Path(name).resolve)
        output = scratch / "pylock.toml"
        await asyncio.to_thread(_write_inputs, scratch, constraints, overrides, preferred or {})
        arguments = [
            *("pip", "compile", "--quiet", "--universal", "--format", "pylock.toml"),
            *("--python", sys.executable, "--python-version", python),
            *("--output-file", str(output), "--constraints", str(scratch / "constraints.txt")),
            *("--overrides", str(scratch / "overrides.txt")),
            *options,
            *sources,
        ]
        if requirements or not sources:
            arguments.append("-")
        environment = await asyncio.to_thread(divert_egg_info, scratch)
        await run(*arguments, cwd=cwd, stdin="\n".join(requirements), environment=environment)
        try:
            text = await asyncio.to_thread(output.read_text, encoding="utf-8")
            return read(tomllib.loads(text)), scratch
        except (OSError, tomllib.TOMLDecodeError, PylockValidationError) as error:
            raise LockError(f"cannot read what uv resolved: {error}; try another uv") from error


def divert_egg_info(scratch: Path) -> dict[str, str]:
    """Return the environment in which setuptools leaves its .egg-info below *scratch*.

    Without it, asking a setuptools backend for metadata writes into the source tree.
    """
    base, settings = scratch / "egg-info", scratch / "distutils.cfg"
    base.mkdir()
    settings.write_text(f"[egg_info]\negg_base = {base}\n", encoding="utf-8")
    return {"DIST_EXTRA_CONFIG": str(settings)}


def _write_inputs(
    scratch: Path, constraints: str, overrides: str, preferred: Mapping[str, str]
) -> None:
    (scratch / "constraints.txt").write_text(constraints, encoding="utf-8")
    (scratch / "overrides.txt").write_text(overrides, encoding="utf-8")
    if preferred:  # uv keeps to the versions of the output file that it finds
        packages = (
            f'[[packages]]\nname = "{package}"\nversion = "{version}"\n'
            for package, version in sorted(preferred.items())
        )
        text = 'lock-version = "1.0"\ncreated-by = "agentix"\n' + "".join(packages)
        (scratch / "pylock.toml").write_text(text, encoding="utf-8")


def _gist(text: str) -> str:
    """Return uv's complaint as one line; of a backend's traceback only the error itself."""
    text = _TRACEBACK.sub("", text)
    _, found, complaint = f"\n{text}".rpartition("\nerror: ")
    lines = (line.strip(" ×╰─▶│├") for line in (complaint if found else text).splitlines())  # noqa: RUF001 - uv draws with it
    words = [line for line in lines if line and not line.startswith(("warning:", "hint:"))]
    return " ".join(words).replace(" cause: ", ": ").rstrip(".") or "it gave no reason"
