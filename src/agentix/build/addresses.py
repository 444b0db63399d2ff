"""Where the missing artifacts can be had: uv knows for wheels, the machine's apt for packages.

A lock holds no address. Both tools are asked with their user's own configuration, so that private
indices, mirrors and flat folders work here as they do there.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import aiohttp

from agentix.build.archive import MIRROR_VARIABLE, find_mirror
from agentix.build.indices import Indices
from agentix.errors import FetchError, LockError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from agentix.build.artifacts import Needed

_UV_TIMEOUT = 300


@dataclass(frozen=True, slots=True)
class Source:
    """An address (http, https or file), and who to be there."""

    address: str
    auth: aiohttp.BasicAuth | None = None


async def find_sources(
    files: Iterable[Needed], *, project: Path, python: str
) -> dict[Needed, Source]:
    """Return where each of *files* is. FetchError names what the configured places do not have.

    *project* is the folder whose uv settings apply, *python* the minor version of the lock.
    """
    wheels = [file for file in files if file.pool is None]
    packages = [file for file in files if file.pool is not None]
    found: dict[Needed, Source] = {}
    if packages:
        try:
            mirror = await find_mirror()
        except LockError as error:
            raise FetchError(str(error)) from error
        found |= {file: Source(f"{mirror}/{file.pool}") for file in packages}
    indices = Indices(project)
    for index, group in _groups(wheels, indices):
        listed = await _ask_uv(group, project, python, index)
        for wheel in group:
            address = _choose(wheel, listed)
            auth = indices.credentials(address)
            found[wheel] = Source(address, aiohttp.BasicAuth(*auth) if auth else None)
    return found


def explain_gone(file: Needed, address: str) -> FetchError:
    """Return the error for a server that says it does not have *file* any more."""
    if file.pool is None:
        return FetchError(
            f"{file.package} {file.version} ({file.file}) is listed but gone from {address}; "
            f"choose another version with `agentix lock --upgrade {file.package}`"
        )
    return FetchError(
        f"{address} is gone: Debian has replaced {file.package} {file.version}; set "
        f"{MIRROR_VARIABLE} to an archive that keeps old versions, or take the new one: "
        "`agentix lock --upgrade` for a system tool, a newer agentix for its toolchain"
    )


def _groups(
    wheels: Iterable[Needed], indices: Indices
) -> Iterator[tuple[str | None, list[Needed]]]:
    """Split *wheels* by the index they are pinned to, and so that each group can be resolved.

    One resolution has one version of each package; a backend may need another one than the project.
    """
    groups: list[tuple[str | None, dict[str, str], list[Needed]]] = []
    for wheel in wheels:
        index = indices.pinned(wheel.package)
        for place, versions, group in groups:
            if index == place and versions.get(wheel.package, wheel.version) == wheel.version:
                versions[wheel.package] = wheel.version
                group.append(wheel)
                break
        else:
            groups.append((index, {wheel.package: wheel.version}, [wheel]))
    for place, _, group in groups:
        yield place, group


async def _ask_uv(
    wheels: Sequence[Needed], project: Path, python: str, index: str | None
) -> list[dict[str, Any]]:
    """Return uv's list of packages with all their files, for exactly these versions."""
    pins = sorted({f"{wheel.package}=={wheel.version}" for wheel in wheels})
    command = [
        *(find_uv(), "pip", "compile", "-", "--quiet", "--no-deps", "--universal", "--no-header"),
        *("--only-binary", ":all:", "--format", "pylock.toml"),
        *("--python", sys.executable, "--python-version", python),
        *(("--index", index) if index else ()),
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=project,
    )
    try:
        async with asyncio.timeout(_UV_TIMEOUT):
            output, errors = await process.communicate("\n".join(pins).encode())
    except TimeoutError:
        raise FetchError(
            f"uv did not say within {_UV_TIMEOUT} s where the wheels are; check its index settings"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise FetchError(f"uv cannot find the locked wheels: {_gist(errors.decode())}")
    packages: list[dict[str, Any]] = tomllib.loads(output.decode()).get("packages", [])
    return packages


def find_uv() -> str:
    """Return the uv that came with agentix, or the one on PATH."""
    try:
        import uv

        return uv.find_uv_bin()
    except (ImportError, FileNotFoundError):
        pass
    if found := shutil.which("uv"):
        return found
    raise FetchError("uv is not installed; install it next to agentix: pip install uv")


def _gist(text: str) -> str:
    """Return uv's complaint as one line."""
    words = " ".join(re.sub(r"[^\x00-\u00ff]|\u00d7", "", text).split())  # no box drawing
    return words.removeprefix("error: ") or "it gave no reason"


def _choose(wheel: Needed, packages: list[dict[str, Any]]) -> str:
    """Return the address of exactly *wheel*: by name and, where the index tells it, by hash."""
    for entry in _files_of(wheel, packages):
        address = entry.get("url") or ""
        if unquote(urlsplit(address).path).rpartition("/")[2] != wheel.file:
            continue
        known = entry.get("hashes", {}).get("sha256")
        if known not in (None, wheel.sha256):
            raise FetchError(
                f"{wheel.file} in the index is not what was locked: expected sha256 "
                f"{wheel.sha256}, got {known}; nothing was added. Check uv's index settings"
            )
        return str(address)
    raise FetchError(
        f"the index that uv uses does not have {wheel.file}; check uv's index settings, "
        f"or choose another version with `agentix lock --upgrade {wheel.package}`"
    )


def _files_of(wheel: Needed, packages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for package in packages:
        if package.get("version") == wheel.version:
            yield from package.get("wheels", ())
