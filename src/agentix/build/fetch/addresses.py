"""Where the missing artifacts can be had: uv knows for wheels, the machine's apt for packages.

A lock holds no address. Both tools are asked with their user's own configuration, so that private
indices, mirrors and flat folders work here as they do there.
"""

from __future__ import annotations

import sys
import tomllib
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from agentix.build.debian.archive import MIRROR_VARIABLE, find_mirror
from agentix.build.indices import Index, Indices
from agentix.build.lock import uv
from agentix.errors import FetchError, LockError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from agentix.build.artifact import Artifact


async def find_addresses(
    files: Iterable[Artifact], *, project: Path, python: str
) -> dict[Artifact, str]:
    """Return where each of *files* is: http, https or file addresses, with credentials in them.

    Of a Git tree it is the address of its repository, of whatever kind. *project* is the folder
    whose uv settings apply, *python* the minor version of the lock.
    FetchError names what the configured places do not have.
    """
    packages = [file for file in files if file.pool is not None]
    direct = [file for file in files if file.direct or file.commit]
    listed_ones = [file for file in files if file not in packages and file not in direct]
    found: dict[Artifact, str] = {}
    if packages:
        try:
            mirror = await find_mirror()
        except LockError as error:
            raise FetchError(str(error)) from error
        found |= {file: f"{mirror}/{file.pool}" for file in packages}
    indices = Indices(project)
    for index, group in _groups(listed_ones, indices):
        listed = await _ask_uv(group, project, python, index)
        for file in group:
            found[file] = indices.with_credentials(_choose(file, listed))
    return found | (await _named(direct, project, python) if direct else {})


async def _named(files: Sequence[Artifact], project: Path, python: str) -> dict[Artifact, str]:
    """Return the addresses that the project's own settings, or its dependencies', have of *files*.

    That is for uv to find out, as when it resolved them: no lock holds an address.
    """
    try:
        lock, base = await uv.compile_requirements(["pyproject.toml"], cwd=project, python=python)
    except LockError as error:
        raise FetchError(
            f"uv cannot say where {files[0].package} {files[0].version} is, "
            f"which comes from no index: {error}"
        ) from error
    known: dict[str, str] = {}
    for package in lock.packages:
        source = package.archive or package.vcs
        if source is not None:
            local = (base / source.path).resolve().as_uri() if source.path else ""
            known[package.name] = local or source.url or ""
    for file in files:
        if file.package not in known:
            raise FetchError(
                f"nothing in {project} says any more where {file.package} {file.version} comes "
                "from; run `agentix lock`"
            )
    return {file: known[file.package] for file in files}


def explain_gone(file: Artifact, address: str) -> FetchError:
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
    wheels: Iterable[Artifact], indices: Indices
) -> Iterator[tuple[Index | None, list[Artifact]]]:
    """Split *wheels* by the index they are pinned to, and so that each group can be resolved.

    One resolution has one version of each package; a backend may need another one than the project.
    """
    groups: list[tuple[Index | None, dict[str, str], list[Artifact]]] = []
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
    wheels: Sequence[Artifact], project: Path, python: str, index: Index | None
) -> list[dict[str, Any]]:
    """Return uv's list of packages with all their files, for exactly these versions."""
    pins = sorted({f"{wheel.package}=={wheel.version}" for wheel in wheels})
    sources = {file.package for file in wheels if not file.file.endswith(".whl")}
    wheels_only = sorted({wheel.package for wheel in wheels} - sources) if sources else [":all:"]
    try:
        output = await uv.run(
            *("pip", "compile", "-", "--quiet", "--no-deps", "--universal", "--no-header"),
            *(word for p in wheels_only for word in ("--only-binary", p)),
            *("--format", "pylock.toml"),
            *("--python", sys.executable, "--python-version", python),
            *(index.options() if index else ()),
            cwd=project,
            stdin="\n".join(pins),
        )
    except LockError as error:
        raise FetchError(
            f"uv cannot say where {wheels[0].package} {wheels[0].version} "
            f"{f'and {len(pins) - 1} more are' if len(pins) > 1 else 'is'}: {error}; "
            "check the network and uv's index settings"
        ) from error
    packages: list[dict[str, Any]] = tomllib.loads(output).get("packages", [])
    return packages


def _choose(wheel: Artifact, packages: list[dict[str, Any]]) -> str:
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


def _files_of(wheel: Artifact, packages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for package in packages:
        if package.get("version") == wheel.version:
            yield from package.get("wheels", ())
            if "sdist" in package:
                yield package["sdist"]
