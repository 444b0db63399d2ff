"""Releases that have to be built: their sources brought to this machine, read, and locked."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.build.artifact import Artifact
from agentix.build.download import copy, download
from agentix.build.indices import Indices
from agentix.build.lock.archives import take_out, unpack
from agentix.build.lock.backends import ask_requirements, has_hidden_requirements
from agentix.build.lock.compiled import is_compiled, is_rust
from agentix.build.lock.file import LockedRelease
from agentix.build.lock.git import check_out
from agentix.build.project import PYPROJECT, Project, read_tree
from agentix.build.session import open_session
from agentix.bundle.nar import nar_hash
from agentix.errors import LockError, ProjectError
from agentix.folders import cache_folder, writing
from agentix.nix.paths import store_name
from agentix.platforms import PLATFORMS

if TYPE_CHECKING:
    from agentix.build.lock.backends import Backends
    from agentix.build.lock.resolution import Origin

_SAY_HOW = (PYPROJECT, "setup.py", "setup.cfg")


@dataclass(frozen=True, slots=True)
class Release:
    """A release as it is locked, and its source."""

    locked: LockedRelease
    source: Artifact


async def lock_release(origin: Origin, root: Path, backends: Backends) -> Release:
    """Lock the release of *origin* for the project in *root*; its source then waits for the store.

    Raises LockError when its source cannot be had or read, or its backend cannot be locked.
    """
    named = f"{origin.package} {origin.version}"
    folder = cache_folder("downloads")
    with tempfile.TemporaryDirectory(prefix="agentix-") as scratch:
        if origin.commit is not None:
            source, place = await _from_git(origin, origin.commit, folder)
            tree = place / origin.path
            files = [path.name for path in await asyncio.to_thread(list, tree.rglob("*"))]
        else:
            source, place = await _from_archive(origin, root, folder)
            tree = Path(scratch)
            files = await asyncio.to_thread(take_out, place, origin.path, _SAY_HOW, tree)
        project = await asyncio.to_thread(_read, named, tree)
        compiled = await asyncio.to_thread(is_compiled, project, files)
        backend = project.backend
        if await asyncio.to_thread(has_hidden_requirements, tree):
            # What it leaves behind there must not get into what was hashed.
            copy_of = await asyncio.to_thread(_laid_out, place, Path(scratch, "all"))
            complete = backends.complete(backend, origin.package)
            backend = await ask_requirements(origin.package, copy_of / origin.path, complete)
    if is_rust(project):
        reason = (
            f"{named} has no wheel for it, and its source is Rust, which is not built: "
            "choose a version that has one"
        )
        missing = dict.fromkeys(PLATFORMS, reason)
        return Release(
            LockedRelease(source=source.file, path=origin.path, backend={}, missing=missing), source
        )
    resolved = await backends.resolve(backend, origin.package)
    locked = LockedRelease(
        source=source.file,
        path=origin.path,
        backend=resolved.files,
        missing=resolved.missing,
        compiled=compiled,
    )
    return Release(locked, source)


def _laid_out(place: Path, folder: Path) -> Path:
    """Return a copy of the source in *place*, an archive or a folder, somewhere below *folder*."""
    if place.is_dir():
        return Path(shutil.copytree(place, folder, symlinks=True))
    return unpack(place, folder)


def _read(named: str, tree: Path) -> Project:
    if not any((tree / name).is_file() for name in (PYPROJECT, "setup.py")):
        raise LockError(f"the source of {named} is no Python project; is its subdirectory right?")
    try:
        return read_tree(tree)
    except ProjectError as error:
        reason = str(error).replace(f"{tree}/", "")
        raise LockError(f"the source of {named} cannot be built: {reason}") from error


async def _from_archive(origin: Origin, root: Path, folder: Path) -> tuple[Artifact, Path]:
    source = Artifact(
        file=origin.file,
        package=origin.package,
        version=origin.version,
        sha256=origin.sha256,
        size=origin.size,
        direct=True if origin.direct else None,
    )
    for place in (folder / source.sha256 / store_name(source.file), Path(source.store_path)):
        if place.is_file():
            return _sized(source, place), place
    with writing(folder):
        draft = tempfile.TemporaryDirectory(prefix="lock-", dir=folder)
    with draft as name:
        file = Path(name, store_name(source.file))
        if origin.address.startswith("file:"):
            await asyncio.to_thread(copy, origin.address, source, file)
        else:
            async with open_session(1) as session:
                address = Indices(root).with_credentials(origin.address)
                await download(session, address, source, file)
        kept = await asyncio.to_thread(_keep, file, folder / source.sha256)
        return _sized(source, kept), kept


async def _from_git(origin: Origin, commit: str, folder: Path) -> tuple[Artifact, Path]:
    file = f"{origin.package}-{commit}"
    with writing(folder):
        draft = tempfile.TemporaryDirectory(prefix="lock-", dir=folder)
    with draft as name:
        tree = Path(name, file)
        try:
            await check_out(origin.address, commit, tree)
        except LockError as error:
            raise LockError(f"{origin.package} {origin.version}: {error}") from error
        sha256 = (await asyncio.to_thread(nar_hash, tree)).sha256
        source = Artifact(
            file=file,
            package=origin.package,
            version=origin.version,
            sha256=sha256,
            commit=commit,
        )
        return source, await asyncio.to_thread(_keep, tree, folder / sha256)


def _sized(source: Artifact, place: Path) -> Artifact:
    return source.model_copy(update={"size": place.stat().st_size})


def _keep(path: Path, folder: Path) -> Path:
    """Move *path* into *folder*, where `agentix fetch` looks for what has come already."""
    with writing(folder):
        folder.mkdir(exist_ok=True)
        place = folder / path.name
        if not os.path.lexists(place):
            path.rename(place)
    return place
