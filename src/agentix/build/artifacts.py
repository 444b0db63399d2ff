"""What a build needs in the store before it starts: a pure reading of lock, toolchain and seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix.build import toolchain as pins
from agentix.errors import LockError
from agentix.nix import fixed_path, store_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentix.build.lock import Artifact, Lock, PlatformName


@dataclass(frozen=True, slots=True, order=True)
class Needed:
    """One file: a wheel, or a Debian package when ``pool`` says where an archive keeps it.

    ``size`` is None where nobody told it.
    """

    file: str
    sha256: str
    size: int | None
    package: str
    version: str
    pool: str | None = None

    @property
    def store_path(self) -> str:
        """Where the store keeps the file."""
        return fixed_path(store_name(self.file), self.sha256)


@dataclass(frozen=True, slots=True, order=True)
class NeededProgram:
    """A static program, in the store as a folder with ``bin/<name>``, taken out of ``artifact``."""

    name: str
    store: str
    sha256: str
    member: str
    artifact: Needed

    @property
    def store_path(self) -> str:
        """Where the store keeps the folder."""
        return fixed_path(self.store, self.sha256, recursive=True)


@dataclass(frozen=True, slots=True)
class Needs:
    """Everything that one build starts from."""

    files: tuple[Needed, ...]
    programs: tuple[NeededProgram, ...]


def needs(lock: Lock, platform: PlatformName, builder: PlatformName) -> Needs:
    """Return what building *lock* for *platform* on a machine of platform *builder* starts from.

    Raises LockError when the lock says that there can be no such bundle.
    """
    target = lock.platforms.get(platform)
    if target is None:
        raise LockError(f"{lock.name} is not locked for {platform}; run `agentix lock`")
    if target.missing:
        raise LockError(f"{lock.name} cannot be built for {platform}: {target.missing}")
    names = {*target.wheels, *target.system}
    for project in lock.projects:
        if reason := project.missing.get(builder):
            raise LockError(f"{project.name} cannot be built on {builder}: {reason}")
        names.update(project.backend.get(builder, ()))
    toolchain = pins.toolchains().get(lock.toolchain)
    if toolchain is None:
        known = ", ".join(pins.toolchains())
        raise LockError(
            f"the lock of {lock.name} asks for the toolchain {lock.toolchain!r}, "
            f"but this agentix has {known}; run `agentix lock`, or install the agentix of the lock"
        )
    seeds = pins.seeds()
    files = {_needed(name, lock.artifacts[name]) for name in names}
    files |= {_needed(wheel.file, wheel) for wheel in seeds.wheels}
    programs: set[NeededProgram] = set()
    for name in (platform, builder):
        files |= {_needed(pin.file, pin) for pin in toolchain.packages[name]}
        for program, seed in seeds.programs[name].items():
            source = _needed(seed.artifact.file, seed.artifact)
            programs.add(NeededProgram(program, seed.store, seed.sha256, seed.member, source))
    return Needs(tuple(sorted(files, key=_order)), tuple(sorted(programs, key=_order)))


def _order(needed: Needed | NeededProgram) -> tuple[str, str]:
    name = needed.file if isinstance(needed, Needed) else needed.name
    return name, needed.sha256


def _needed(file: str, source: Artifact | pins.Pin) -> Needed:
    return Needed(file, source.sha256, source.size, source.package, source.version, source.pool)


def total_size(files: Iterable[Needed]) -> int:
    """Return how many bytes *files* are together, as far as their sizes are known."""
    return sum(file.size or 0 for file in files)
