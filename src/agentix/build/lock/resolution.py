"""One resolution by uv, and the files that each platform takes of it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker

from agentix.build.artifact import Artifact
from agentix.build.lock import uv
from agentix.build.lock.wheels import Interpreter, select
from agentix.build.project import read_tree, workspace_root
from agentix.errors import LockError
from agentix.platforms import PLATFORMS, PlatformName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from packaging.pylock import Package, PackageWheel, Pylock

    from agentix.build.lock.file import Lock
    from agentix.build.toolchain import Toolchain


@dataclass(slots=True)
class Resolution:
    """The wheels for each platform, why a platform has none, and the source trees among them."""

    files: dict[PlatformName, tuple[str, ...]] = field(default_factory=dict)
    missing: dict[PlatformName, str] = field(default_factory=dict)
    artifacts: dict[str, Artifact] = field(default_factory=dict)
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
        resolution.files[platform] = tuple(sorted(artifact.file for artifact in artifacts))
        resolution.artifacts |= {artifact.file: artifact for artifact in artifacts}
    if not resolution.files:
        raise LockError(next(iter(resolution.missing.values())))
    return resolution


def _artifact(package: Package, wheel: PackageWheel, base: Path) -> Artifact:
    sha256, size = wheel.hashes.get("sha256"), wheel.size
    if (sha256 is None or size is None) and (file := _local_file(wheel, base)) is not None:
        data = file.read_bytes()
        sha256, size = hashlib.sha256(data).hexdigest(), len(data)
    if sha256 is None:
        raise LockError(
            f"the index gives no sha256 for {wheel.filename}, so it cannot be locked; "
            "use an index that does, or a local copy of the wheel"
        )
    return Artifact(
        file=wheel.filename,
        package=package.name,
        version=str(package.version),
        sha256=sha256,
        size=size,
    )


def _local_file(wheel: PackageWheel, base: Path) -> Path | None:
    if wheel.path is not None:
        return Path(os.path.normpath(base / wheel.path))
    parts = urlsplit(wheel.url or "")
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
