"""Tools from npm, locked for every platform: resolved, fetched, verified and looked into."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from pydantic import ValidationError

from agentix.build.artifact import Artifact
from agentix.build.declared import split_release
from agentix.build.lock.tool import LockedTool, ToolTarget
from agentix.build.npm.package import Wanted
from agentix.build.npm.programs import find_programs
from agentix.build.npm.registry import Registry, open_registry
from agentix.build.npm.resolving import resolve
from agentix.build.npm.tree import Unfit, chosen, place
from agentix.errors import LockError
from agentix.folders import cache_folder, writing
from agentix.nix.paths import store_name
from agentix.platforms import PLATFORMS, PlatformName
from agentix.validation import first_fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from agentix.build.lock.file import Lock
    from agentix.build.npm.package import Package
    from agentix.progress import Progress, Step


@dataclass(slots=True)
class NpmTools:
    """Locked tools, their tarballs, and why there is none for a platform."""

    locked: list[LockedTool] = field(default_factory=list)
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    missing: dict[PlatformName, str] = field(default_factory=dict)
    scripted: list[str] = field(default_factory=list)  # would run something at an installation

    @property
    def node(self) -> bool:
        """Whether Node runs any of their programs."""
        return any(target.node for tool in self.locked for target in tool.targets.values())

    def add(self, tool: LockedTool, artifacts: Mapping[str, Artifact]) -> None:
        """Add a tool; LockError when two tarballs would have one name."""
        for file, artifact in artifacts.items():
            if self.artifacts.setdefault(file, artifact) != artifact:
                raise LockError(
                    f"two tarballs of npm tools are called {file}; leave one of the tools out"
                )
        self.locked.append(tool)


async def lock_npm_tools(
    releases: Sequence[str],
    root: Path,
    *,
    previous: Lock | None,
    released: Collection[str],
    progress: Progress,
) -> NpmTools:
    """Lock the tools *releases*, each ``name@version``, with the npm settings of the folder *root*.

    What *previous* has of them stays, unless its normalised name is among the *released*. The
    tarballs then wait for the store. Raises LockError when a tool cannot be had, resolved, or run
    on any platform.
    """
    found = NpmTools()
    wanted = [Wanted(*split_release(release)) for release in sorted(set(releases))]
    fresh = []
    for one in wanted:
        kept = None if canonicalize_name(one.name) in released else _kept(previous, one)
        if kept is None or previous is None:
            fresh.append(one)
        else:
            files = {file for _, names in kept.files() for file in names}
            found.add(kept, {file: previous.artifacts[file] for file in files})
    if fresh:
        with progress.step("npm", unit="bytes") as step:
            async with open_registry(root) as registry:
                for one in fresh:
                    await _Locking(registry, one, root, found, step).run()
            step.outcome(", ".join(map(str, fresh)))
        if found.scripted:
            with progress.step("npm") as step:
                more = f" and {len(found.scripted) - 1} more" if found.scripted[1:] else ""
                step.outcome(
                    f"warning: {found.scripted[0]}{more} would run an install script, and none is "
                    "run; what it makes or fetches will be missing"
                )
    found.locked.sort(key=lambda tool: tool.name)
    for tool in found.locked:
        for platform in PLATFORMS:
            if platform not in tool.targets:
                found.missing.setdefault(platform, f"{tool.release} does not run there")
    return found


def _kept(previous: Lock | None, wanted: Wanted) -> LockedTool | None:
    for tool in previous.npm if previous else ():
        if (tool.name, tool.version) == (wanted.name, wanted.version):
            return tool
    return None


@dataclass(frozen=True, slots=True)
class _Locking:
    """One tool on its way into a lock."""

    registry: Registry
    wanted: Wanted
    root: Path
    found: NpmTools
    step: Step

    async def run(self) -> None:
        tree = await resolve(self.registry, self.wanted, self.root)
        top = place(self.wanted.name)
        if top not in tree:
            raise LockError(f"npm did not resolve {self.wanted}")
        taken: dict[PlatformName, dict[str, Package]] = {}
        reasons: dict[PlatformName, str] = {}
        for platform in PLATFORMS.values():
            try:
                taken[platform.name] = chosen(tree, top, platform)
            except Unfit as error:
                reasons[platform.name] = str(error)
        if not taken:
            raise LockError(f"cannot lock {self.wanted}: {next(iter(reasons.values()))}")
        self.found.missing |= {p: r for p, r in reasons.items() if p not in self.found.missing}
        folder = cache_folder("downloads")
        with writing(folder):
            draft = tempfile.TemporaryDirectory(prefix="lock-", dir=folder)
        with draft as scratch:
            packages = {str(p): p for some in taken.values() for p in some.values() if not p.within}
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._bring(package, Path(scratch)))
                    for package in packages.values()
                ]
            brought = [task.result() for task in tasks]
            artifacts = dict(zip(packages, brought, strict=True))
            targets = {
                platform: await asyncio.to_thread(
                    self._target, top, some, artifacts, Path(scratch), platform
                )
                for platform, some in taken.items()
            }
            await asyncio.to_thread(_keep, brought, Path(scratch), folder)
        by_itself = {self.wanted.name} if not any(t.node for t in targets.values()) else set()
        self.found.scripted += sorted(
            str(package)
            for package in packages.values()
            if package.scripted and package.name not in by_itself
        )
        tool = LockedTool(name=self.wanted.name, version=self.wanted.version, targets=targets)
        self.found.add(tool, {artifact.file: artifact for artifact in brought})

    async def _bring(self, package: Package, scratch: Path) -> Artifact:
        one = Wanted(package.name, package.version)
        release = await self.registry.release(one)
        if package.integrity is not None and not release.integrity.agrees(package.integrity):
            raise LockError(f"the npm registry has two integrities of {one}; ask it again later")
        sha256, size = await self.registry.download(
            release, scratch / store_name(one.file), self.step.advance
        )
        with self._lockable():
            return Artifact(
                file=one.file,
                package=one.name,
                version=one.version,
                sha256=sha256,
                size=size,
                npm=True,
            )

    def _target(
        self,
        top: str,
        packages: Mapping[str, Package],
        artifacts: Mapping[str, Artifact],
        scratch: Path,
        platform: PlatformName,
    ) -> ToolTarget:
        files = {
            path: artifacts[str(package)].file
            for path, package in packages.items()
            if not package.within
        }
        tarballs = {path: scratch / store_name(file) for path, file in files.items()}
        own = {path: package for path, package in packages.items() if path in files}
        programs = find_programs(top, own, tarballs, PLATFORMS[platform])
        with self._lockable():
            return ToolTarget(packages=files, programs=dict(programs.paths), node=programs.node)

    @contextmanager
    def _lockable(self) -> Iterator[None]:
        """Refuse what no lock may hold: packages choose the names of files and programs."""
        try:
            yield
        except ValidationError as error:
            raise LockError(f"cannot lock {self.wanted}: {first_fault(error)}") from error


def _keep(brought: Sequence[Artifact], scratch: Path, folder: Path) -> None:
    """Move what has come to where a fetch finds it."""
    for artifact in brought:
        name = store_name(artifact.file)
        waiting = folder / artifact.sha256
        with writing(folder):
            waiting.mkdir(exist_ok=True)
            (scratch / name).replace(waiting / name)
