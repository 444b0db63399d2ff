"""One resolution by uv, and the files that each platform takes of it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import posixpath
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.pylock import PackageArchive, PackageVcs

from agentix.build.artifact import Artifact
from agentix.build.lock import uv
from agentix.build.lock.archives import suffix
from agentix.build.lock.wheels import Interpreter, select
from agentix.build.project import read_tree, workspace_root
from agentix.errors import LockError
from agentix.platforms import PLATFORMS, PlatformName
from agentix.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from packaging.pylock import Package, PackageSdist, PackageWheel, Pylock

    from agentix.build.lock.file import Lock
    from agentix.build.toolchain import Toolchain


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a release comes from that has to be built: a source archive, or a commit.

    ``address`` is of the archive or the repository, ``path`` the folder of the project in it, and
    ``direct`` says that the project's own settings have the address.
    """

    package: str
    version: str
    address: str
    path: str = "."
    file: str = ""
    sha256: str = ""
    size: int | None = None
    commit: str | None = None
    direct: bool = False


@dataclass(slots=True)
class Resolution:
    """What each platform takes: wheels, releases to build, and source trees of this machine.

    ``missing`` says why a platform has none of it, ``addresses`` where the wheels are.
    """

    files: dict[PlatformName, tuple[str, ...]] = field(default_factory=dict)
    origins: dict[PlatformName, tuple[Origin, ...]] = field(default_factory=dict)
    missing: dict[PlatformName, str] = field(default_factory=dict)
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    trees: dict[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resolver:
    """Resolves for one toolchain, with the uv settings that apply in the folder *root*.

    ``released`` are the packages whose versions need not stay what they were.
    """

    root: Path
    toolchain: Toolchain
    released: AbstractSet[str] = frozenset()

    async def resolve(
        self,
        sources: Sequence[str],
        requirements: Sequence[str],
        *,
        preferred: Mapping[str, str],
        constraints: str = "",
        overrides: str = "",
    ) -> Resolution:
        """Resolve *requirements* and those of the pyproject files *sources*.

        Raises UvFailed when uv finds no solution, LockError when no platform can use it.
        """
        interpreters = [Interpreter(self.toolchain, platform) for platform in PLATFORMS.values()]
        lock, base = await uv.compile_requirements(
            sources,
            cwd=self.root,
            python=interpreters[0].version,
            requirements=requirements,
            constraints=constraints,
            overrides=overrides,
            preferred={k: v for k, v in preferred.items() if k not in self.released},
        )
        return await asyncio.to_thread(_choose, lock, base, interpreters, self._environments())

    def _environments(self) -> list[str]:
        """Return the markers of the only environments that uv resolves for; none means all."""
        found = read_tree(workspace_root(self.root)).uv.get("environments", [])
        return [found] if isinstance(found, str) else found


def pinned_versions(lock: Lock | None, files: Iterable[str]) -> dict[str, str]:
    """Return the versions that *lock* has of the packages behind *files*, where it has but one."""
    versions: dict[str, set[str]] = {}
    for artifact in (lock.artifacts[file] for file in files) if lock else ():
        versions.setdefault(artifact.package, set()).add(artifact.version)
    return {package: found.pop() for package, found in versions.items() if len(found) == 1}


def _choose(
    lock: Pylock, base: Path, interpreters: Sequence[Interpreter], environments: Sequence[str]
) -> Resolution:
    resolution = Resolution()
    for interpreter in interpreters:
        platform = interpreter.platform.name
        seen = cast("Mapping[str, str]", interpreter.environment())
        known = [Marker(text).evaluate(seen) for text in environments]
        if known and not any(known):
            resolution.missing[platform] = f"[tool.uv] environments leaves out {interpreter}"
            continue
        selection, unusable = select(lock, interpreter)
        for name, path in selection.directories:
            resolution.trees[name] = Path(os.path.normpath(base / path))
        if unusable:
            others = f" (and {len(unusable) - 1} more like it)" if unusable[1:] else ""
            resolution.missing[platform] = unusable[0].reason + others
            continue
        artifacts = [_artifact(package, wheel, base) for package, wheel in selection.wheels]
        origins = [_origin(package, source, base) for package, source in selection.sources]
        resolution.origins[platform] = tuple(origins)
        resolution.files[platform] = tuple(sorted(artifact.file for artifact in artifacts))
        resolution.artifacts |= {artifact.file: artifact for artifact in artifacts}
        resolution.addresses |= {w.filename: _address(w, base) for _, w in selection.wheels}
    if not resolution.files:
        raise LockError(next(iter(resolution.missing.values())))
    return resolution


def _artifact(package: Package, wheel: PackageWheel, base: Path) -> Artifact:
    sha256, size = wheel.hashes.get("sha256"), wheel.size
    if (sha256 is None or size is None) and (file := _local_file(wheel, base)) is not None:
        sha256, size = _hash(file)
    if sha256 is None:
        raise LockError(_no_hash(wheel.filename))
    return Artifact(
        file=wheel.filename,
        package=package.name,
        version=str(package.version),
        sha256=sha256,
        size=size,
        direct=True if package.archive is not None else None,
    )


def _origin(
    package: Package, source: PackageSdist | PackageArchive | PackageVcs, base: Path
) -> Origin:
    if package.version is None:
        raise LockError(f"uv does not tell the version of {package.name}; try another uv")
    local = None if isinstance(source, PackageVcs) else _local_file(source, base)
    origin = Origin(
        package=package.name,
        version=str(package.version),
        address=local.as_uri() if local is not None else source.url or source.path or "",
        direct=package.is_direct,
    )
    if isinstance(source, PackageVcs):
        if source.type != "git":
            raise LockError(f"{package.name} comes from {source.type}, and only Git is understood")
        return replace(origin, path=_folder(package, source), commit=source.commit_id)
    name = unquote(urlsplit(origin.address).path).rpartition("/")[2]
    ending = suffix(name)
    if ending is None:
        raise LockError(f"{name} of {package.name} is no source archive that can be read")
    sha256, size = source.hashes.get("sha256"), source.size
    if sha256 is None and local is not None:
        sha256, size = _hash(local)
    if sha256 is None:
        raise LockError(_no_hash(name))
    if isinstance(source, PackageArchive):  # at an address that tells nothing: v1.0.zip
        name = f"{package.name}-{package.version}{ending}"
        origin = replace(origin, path=_folder(package, source))
    return replace(origin, file=name, sha256=sha256, size=size)


def _folder(package: Package, source: PackageArchive | PackageVcs) -> str:
    """Return where in its *source* the project is, as whoever depends on it says."""
    folder = posixpath.normpath(source.subdirectory or ".")
    if folder.split("/")[0] in {"", ".."}:
        raise LockError(f"{package.name} is said to lie outside of its source, at {quoted(folder)}")
    return folder


def _local_file(source: PackageWheel | PackageSdist | PackageArchive, base: Path) -> Path | None:
    if source.path is not None:
        return Path(os.path.normpath(base / source.path))
    parts = urlsplit(source.url or "")
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _address(wheel: PackageWheel, base: Path) -> str:
    local = _local_file(wheel, base)
    return local.as_uri() if local is not None else wheel.url or ""


def _hash(file: Path) -> tuple[str, int]:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return digest, file.stat().st_size


def _no_hash(file: str) -> str:
    return (
        f"the index gives no sha256 for {file}, so it cannot be locked; "
        "use an index that does, or a local copy of the file"
    )
