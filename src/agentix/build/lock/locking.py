"""From a project to its lock: everything that its bundles need, resolved at once."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from pydantic import ValidationError

from agentix.build.lock import uv
from agentix.build.lock.backends import (
    Backends,
    ask_requirements,
    ask_version,
    has_hidden_requirements,
)
from agentix.build.lock.compiled import is_compiled
from agentix.build.lock.compilers import Compilers, kept_compilers, lock_compilers
from agentix.build.lock.file import (
    LOCK_FILE,
    Lock,
    LockedProject,
    LockedRelease,
    Target,
    load,
)
from agentix.build.lock.inputs import UV_LOCK, digest
from agentix.build.lock.npm import lock_npm_tools
from agentix.build.lock.plugins import tree_needs
from agentix.build.lock.releases import Release, lock_release
from agentix.build.lock.resolution import Origin, Resolution, Resolver, pinned_versions
from agentix.build.lock.runtime import runtime_folder, runtime_requirement
from agentix.build.lock.system import (
    Packages,
    declared_tools,
    kept_system_tools,
    lock_system_tools,
    refuse_what_is_there,
)
from agentix.build.lock.tools import NODE, Tools, join
from agentix.build.lock.wheel_needs import wheels_needs
from agentix.build.project import Project, read_project, read_tree, workspace_root
from agentix.build.toolchain import Toolchain, choose
from agentix.errors import LockError
from agentix.platforms import PLATFORMS, PlatformName
from agentix.progress import SILENT, Progress
from agentix.ungrouped import ungrouped
from agentix.validation import first_fault

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from agentix.build.declared import Declared


def lock_project(
    root: Path,
    *,
    python: str | None = None,
    upgrade: Collection[str] | bool = (),
    progress: Progress = SILENT,
) -> Lock:
    """Resolve the project in *root* for every platform; nothing is written.

    *python* is the minor version to use. What an existing ``bundle.lock`` pins stays as far as it
    fits; *upgrade* names the packages and system tools that need not stay, True means all.

    Raises ProjectError when the project cannot be read, LockError when it cannot be resolved, when
    its uv.lock is not up to date, or when a dependency can be had for no platform.
    """
    root = root.resolve()
    project = read_project(root)
    previous = None if upgrade is True else _previous(root)
    toolchain = choose(
        project.requires_python,
        asked=python or project.settings.python,
        preferred=[*([previous.python] if previous else []), _host_python()],
        project=str(project.file),
    )
    refuse_what_is_there(project.settings.system, toolchain)
    names = frozenset(map(canonicalize_name, () if isinstance(upgrade, bool) else upgrade))
    locking = _Locking(project, Resolver(root, toolchain, names), previous, progress)
    try:
        with ungrouped():
            return asyncio.run(locking.run())
    except (ValidationError, BaseExceptionGroup) as error:
        if (fault := _fault(error)) is None:
            raise
        raise LockError(f"cannot lock {project.name}: what was resolved: {fault}") from error


def _fault(error: BaseException) -> str | None:
    """Return what no lock may hold of what others named, when *error* tells of nothing else."""
    if isinstance(error, ValidationError):
        return first_fault(error)
    if isinstance(error, BaseExceptionGroup):
        faults = [_fault(one) for one in error.exceptions]
        return None if None in faults else faults[0]
    return None


@dataclass(frozen=True, slots=True)
class _Locking:
    """One run, and what is decided before anything is resolved."""

    project: Project
    resolver: Resolver
    previous: Lock | None
    progress: Progress

    @property
    def name(self) -> str:
        return self.project.name or ""

    @property
    def toolchain(self) -> Toolchain:
        return self.resolver.toolchain

    async def run(self) -> Lock:
        """Resolve, and put the lock together."""
        with self.progress.step("lock") as step:
            async with asyncio.TaskGroup() as group:
                backends = Backends(self.resolver, self.previous, group)
                system = group.create_task(self._system_tools(self.project.settings.system))
                # Most other trees use the same backends.
                for tree in (self.project, *self._runtime_tree()):
                    backends.expect(tree.backend)
                found = await self._dependencies()
                trees = {name: read_tree(path) for name, path in sorted(found.trees.items())}
                others = [t for t in trees.items() if t[1].root != self.project.root]
                self._refuse_namesake(found, dict(others))
                tools = group.create_task(self._tools(found, dict(others), system))
                projects = [
                    group.create_task(self._locked(name, tree, backends))
                    for name, tree in ((self.name, self.project), *others)
                ]
                origins = dict.fromkeys(o for some in found.origins.values() for o in some)
                releases = {
                    origin: group.create_task(lock_release(origin, self.project.root, backends))
                    for origin in origins
                }
                compilers = await self._compilers(found, projects, releases)
            step.outcome(self._outcome(found))
        return self._lock(
            found,
            [task.result() for task in projects],
            {origin: task.result() for origin, task in releases.items()},
            backends,
            tools.result(),
            compilers,
        )

    def _refuse_namesake(self, found: Resolution, others: Mapping[str, Project]) -> None:
        needed = {file.package for file in found.artifacts.values()}
        needed |= {origin.package for some in found.origins.values() for origin in some}
        if self.name in {*others, *needed}:
            raise LockError(
                f"cannot lock {self.name}: the bundle needs another package of that name "
                "(its runtime, or a dependency); rename the project"
            )

    def _lock(
        self,
        found: Resolution,
        projects: list[LockedProject],
        releases: Mapping[Origin, Release],
        backends: Backends,
        tools: Tools,
        compilers: Compilers,
    ) -> Lock:
        artifacts = found.artifacts | backends.artifacts()
        artifacts |= {release.source.file: release.source for release in releases.values()}
        built = [release.locked for release in releases.values()]
        for packages in (*tools.packages.values(), tools.npm.artifacts):
            artifacts |= packages
        parts: tuple[LockedProject | LockedRelease, ...] = (*projects, *built)
        used = {file for part in parts for files in part.backend.values() for file in files}
        used.update(release.source for release in built)
        used.update(file for files in found.files.values() for file in files)
        used.update(file for packages in tools.packages.values() for file in packages)
        used.update(tools.npm.artifacts)
        compiling = [deb for some in compilers.values() for debs in some.values() for deb in debs]
        artifacts |= {deb.file: deb for deb in compiling}
        used.update(deb.file for deb in compiling)
        return Lock(
            name=canonicalize_name(self.project.settings.name or self.name),
            version=projects[0].version,
            inputs=digest(self.project.root, (p.path for p in projects), self.toolchain.name),
            toolchain=self.toolchain.name,
            python=self.toolchain.python,
            projects=tuple(projects),
            releases=tuple(sorted(built, key=lambda release: release.source)),
            compilers={
                builder: {
                    target: tuple(sorted(d.file for d in debs)) for target, debs in some.items()
                }
                for builder, some in compilers.items()
            },
            build=tuple(dict.fromkeys(self.project.settings.build)) if compilers else (),
            system=tools.system,
            npm=tuple(tools.npm.locked),
            nix=self.project.settings.nix,
            plugins=tools.plugins,
            platforms={
                platform: Target(
                    wheels=found.files.get(platform, ()),
                    sources=tuple(
                        sorted(releases[o].locked.source for o in found.origins.get(platform, ()))
                    ),
                    system=tuple(sorted(tools.packages[platform])),
                    missing=found.missing.get(platform) or tools.npm.missing.get(platform),
                )
                for platform in PLATFORMS
            },
            artifacts={file: artifacts[file] for file in used},
        )

    async def _dependencies(self) -> Resolution:
        constraints, overrides = await self._uv_lock_pins() if self._uv_lock.is_file() else ("", "")
        targets = self.previous.platforms.values() if self.previous else ()
        files = [file for target in targets for file in target.wheels]
        try:
            return await self.resolver.resolve(
                ["pyproject.toml"],
                [runtime_requirement(self.project)],
                preferred=pinned_versions(self.previous, files),
                constraints=constraints,
                overrides=overrides,
            )
        except LockError as error:
            pins = " with the versions that its uv.lock pins" if constraints or overrides else ""
            raise LockError(f"cannot lock {self.name}{pins}: {error}") from error

    @property
    def _uv_lock(self) -> Path:
        return workspace_root(self.project.root) / UV_LOCK

    async def _uv_lock_pins(self) -> tuple[str, str]:
        """Return the versions in the project's uv.lock, and the commits that branches had then.

        It must be up to date.
        """
        arguments = ["export", "--locked", "--format", "requirements.txt", "--no-hashes"]
        arguments += ["--no-default-groups", "--no-emit-local", "--no-header", "--no-annotate"]
        try:
            pins = await uv.run(*arguments, "--python", sys.executable, cwd=self.project.root)
        except uv.UvFailed as error:
            raise LockError(f"cannot use {self._uv_lock}: {error}; run `uv lock`") from error
        lines = pins.splitlines()
        # A constraint may not say another commit than a branch has now; an override may.
        commits = [line for line in lines if " @ git+" in line]
        return "\n".join(line for line in lines if " @ " not in line), "\n".join(commits)

    async def _tools(
        self,
        found: Resolution,
        others: Mapping[str, Project],
        early: asyncio.Task[Mapping[PlatformName, Packages]],
    ) -> Tools:
        """Lock what project and plugins declare; *early* is what the project alone does."""
        own = self.project.settings
        plugins = await wheels_needs(
            found.artifacts.values(), found.addresses, self.project.root, self.previous
        )
        for name, tree in {self.name: self.project, **others}.items():
            if (declared := tree_needs(name, tree)).lines():
                plugins[name] = declared
        self._tell(plugins)
        system, releases = join(own, plugins)
        npm = await lock_npm_tools(
            releases,
            self.project.root,
            previous=self.previous,
            released=self.resolver.released,
            progress=self.progress,
        )
        names = declared_tools([*system, *([NODE] if npm.node else [])])
        refuse_what_is_there(names, self.toolchain)
        alone = names == declared_tools(own.system)
        packages = await (early if alone else self._system_tools(names))
        return Tools(plugins, tuple(names), packages, npm)

    def _tell(self, plugins: Mapping[str, Declared]) -> None:
        """Say what plugins ask for that asked for something else, or nothing, before."""
        before = (self.previous.plugins if self.previous else None) or {}
        for name, declared in sorted(plugins.items()):
            if before.get(name) != declared:
                with self.progress.step("plugin") as step:
                    step.outcome(f"{name} asks for {', '.join(declared.lines())}")

    async def _system_tools(self, declared: list[str]) -> Mapping[PlatformName, Packages]:
        names = declared_tools(declared)
        kept = kept_system_tools(self.previous, names, self.toolchain)
        if kept is not None and self.resolver.released.isdisjoint(names):
            return kept
        return await lock_system_tools(names, self.toolchain, self.progress)

    async def _compilers(
        self,
        found: Resolution,
        projects: list[asyncio.Task[LockedProject]],
        releases: Mapping[Origin, asyncio.Task[Release]],
    ) -> Compilers:
        """Lock what compiles whatever takes it, for the platforms for which that is built."""
        compiled = {origin for origin, task in releases.items() if (await task).locked.compiled}
        targets = [
            platform
            for platform in PLATFORMS
            if platform not in found.missing and not compiled.isdisjoint(found.origins[platform])
        ]
        if any([(await task).compiled for task in projects]):
            targets = list(PLATFORMS)
        if not targets:
            return {}
        names = tuple(dict.fromkeys(self.project.settings.build))
        kept = kept_compilers(self.previous, self.toolchain, targets, names)
        if kept and self.resolver.released.isdisjoint(names):
            return kept
        return await lock_compilers(self.toolchain, targets, names, self.progress)

    async def _locked(self, name: str, tree: Project, backends: Backends) -> LockedProject:
        complete = backends.complete(tree.backend, name)
        asked = tree.backend
        if await asyncio.to_thread(has_hidden_requirements, tree.root):
            asked = await ask_requirements(name, tree.root, complete)
        backend = await backends.resolve(asked, name)
        version = tree.version or await ask_version(name, tree.root, complete)
        return LockedProject(
            name=name,
            version=version,
            path=_relative(tree.root, self.project.root),
            backend=backend.files,
            missing=backend.missing,
            compiled=await asyncio.to_thread(is_compiled, tree),
        )

    def _runtime_tree(self) -> list[Project]:
        """Return the tree that the runtime comes from, unless it is a release."""
        folder = runtime_folder(self.project)
        return [] if folder is None else [read_tree(folder)]

    def _outcome(self, found: Resolution) -> str:
        counts = "/".join(str(n) for n in sorted({len(files) for files in found.files.values()}))
        where = LOCK_FILE if not self._uv_lock.is_file() else f"{LOCK_FILE}, as uv.lock pins them"
        without = "".join(f"; not for {platform}" for platform in found.missing)
        return f"{counts} wheels for Python {self.toolchain.python} into {where}{without}"


def _relative(folder: Path, root: Path) -> str:
    return Path(os.path.relpath(folder, root)).as_posix()


def _previous(root: Path) -> Lock | None:
    try:
        return load(root / LOCK_FILE)
    except LockError:
        return None  # it is about to be written afresh


def _host_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
