"""What a build needs in the store before it starts: a pure reading of lock, toolchain and seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix.build import toolchain as pins
from agentix.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentix.build.artifact import Artifact, Seed
    from agentix.build.lock import Lock
    from agentix.platforms import PlatformName


@dataclass(frozen=True, slots=True)
class Needs:
    """Everything that one build starts from."""

    files: tuple[Artifact, ...]
    programs: tuple[Seed, ...]

    @property
    def items(self) -> tuple[Artifact | Seed, ...]:
        """All that the store has to hold."""
        return (*self.files, *self.programs)

    def artifacts(self) -> list[Artifact]:
        """Return the files that all of it comes from, each once."""
        found = {file.sha256: file for file in self.files}
        for program in self.programs:
            found.setdefault(program.artifact.sha256, program.artifact)
        return list(found.values())


def needs(lock: Lock, platform: PlatformName, builder: PlatformName) -> Needs:
    """Return what building *lock* for *platform* on a machine of platform *builder* starts from.

    Raises LockError when the lock says that there can be no such bundle.
    """
    target = lock.platforms.get(platform)
    if target is None:
        raise LockError(f"{lock.name} is not locked for {platform}; run `agentix lock`")
    if target.missing:
        raise LockError(f"{lock.name} cannot be built for {platform}: {target.missing}")
    names = {*target.wheels, *target.sources, *target.system}
    names.update(file for tool in lock.npm for file in tool.targets[platform].packages.values())
    releases = [release for release in lock.releases if release.source in target.sources]
    built = {project.name: project for project in lock.projects}
    for name, part in (built | {lock.artifacts[r.source].package: r for r in releases}).items():
        if reason := part.missing.get(builder):
            raise LockError(f"{name} cannot be built on {builder}: {reason}")
        names.update(part.backend.get(builder, ()))
        if part.compiled:
            compiler = lock.compilers.get(builder, {}).get(platform)
            if compiler is None and lock.build and platform != builder:
                raise LockError(
                    f"{name} is compiled with {', '.join(lock.build)}, as [tool.agentix] build "
                    f"says, and therefore for {platform} only on such a machine; build it there"
                )
            if compiler is None:
                raise LockError(
                    f"the lock of {lock.name} has nothing to compile {name} for {platform} with; "
                    "run `agentix lock`"
                )
            names.update(compiler)
    toolchain = pins.toolchains().get(lock.toolchain)
    if toolchain is None:
        known = ", ".join(pins.toolchains())
        raise LockError(
            f"the lock of {lock.name} asks for the toolchain {lock.toolchain!r}, "
            f"but this agentix has {known}; run `agentix lock`, or install the agentix of the lock"
        )
    seeds = pins.seeds()
    files = {*(lock.artifacts[name] for name in names), *seeds.wheels}
    programs: set[Seed] = set()
    for name in (platform, builder):
        files.update(toolchain.packages[name])
        programs.update(seeds.programs[name].values())
    return Needs(
        tuple(sorted(files, key=lambda file: (file.file, file.sha256))),
        tuple(sorted(programs, key=lambda program: (program.store, program.sha256))),
    )


def total_size(files: Iterable[Artifact]) -> int:
    """Return how many bytes *files* are together, as far as their sizes are known."""
    return sum(file.size or 0 for file in files)
