"""Compilers: the Debian packages that what is written in C or C++ is built with.

They are of the toolchain's own suite, since what they make is linked to its C library, and no part
of any bundle. Libraries to compile with can be among them, on the platform that is built for: in
Debian those of another one need that one's programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.build.debian.archive import Archive, find_mirror
from agentix.build.debian.packages import closure
from agentix.errors import LockError
from agentix.platforms import PLATFORMS, PlatformName

if TYPE_CHECKING:
    from collections.abc import Collection

    from agentix.build.artifact import Artifact
    from agentix.build.debian.index import SuiteIndex
    from agentix.build.lock.file import Lock
    from agentix.build.toolchain import Toolchain
    from agentix.progress import Progress

Compilers = dict[PlatformName, dict[PlatformName, list["Artifact"]]]  # of builder, for target


async def lock_compilers(
    toolchain: Toolchain,
    targets: Collection[PlatformName],
    libraries: Collection[str],
    progress: Progress,
) -> Compilers:
    """Return the packages with which each platform compiles for each of *targets*.

    With *libraries*, further packages to compile with, each compiles for itself only.
    """
    archive = Archive(await find_mirror())
    architectures = [platform.debian for platform in PLATFORMS.values()]
    opened = await archive.indices(toolchain.suite, architectures, progress)
    indices = dict(zip(PLATFORMS, opened, strict=True))
    try:
        return {
            builder: {
                target: _packages(
                    indices[builder], indices[target], toolchain, builder, target, libraries
                )
                for target in _targets(builder, targets, libraries)
            }
            for builder in PLATFORMS
        }
    finally:
        for index in opened:
            index.__exit__()


def kept_compilers(
    previous: Lock | None,
    toolchain: Toolchain,
    targets: Collection[PlatformName],
    libraries: Collection[str],
) -> Compilers | None:
    """Return what *previous* locked for these *targets*, or None when that no longer fits."""
    if previous is None or previous.toolchain != toolchain.name:
        return None
    if previous.build != tuple(libraries) or any(
        set(found) != set(_targets(builder, targets, libraries))
        for builder, found in previous.compilers.items()
    ):
        return None
    return {
        builder: {
            target: [previous.artifacts[file] for file in files] for target, files in found.items()
        }
        for builder, found in previous.compilers.items()
    } or None


def _targets(
    builder: PlatformName, targets: Collection[PlatformName], libraries: Collection[str]
) -> list[PlatformName]:
    return [target for target in targets if target == builder or not libraries]


def _packages(
    here: SuiteIndex,
    there: SuiteIndex,
    toolchain: Toolchain,
    builder: PlatformName,
    target: PlatformName,
    libraries: Collection[str],
) -> list[Artifact]:
    wanted = PLATFORMS[target]
    if builder == target:
        names = ["binutils", "g++", "gcc", *libraries]
    else:
        triple = f"{wanted.machine}-linux-gnu".replace("_", "-")
        names = [f"{name}-{triple}" for name in ("binutils", "g++", "gcc")]
        names.append(f"libc6-dev-{wanted.debian}-cross")
    headers = there.package(f"libpython{toolchain.python}-dev")
    if headers is None:
        raise LockError(f"{toolchain.suite} has no headers of Python for {target}")
    found = closure(here, names, without=toolchain.names(builder))
    return [package.artifact() for package in (*found, headers)]
