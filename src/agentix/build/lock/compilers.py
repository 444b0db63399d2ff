"""Compilers: the Debian packages that what is written in C or C++ is built with.

They are of the toolchain's own suite, since what they make is linked to its C library, and no part
of any bundle.
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
    toolchain: Toolchain, targets: Collection[PlatformName], progress: Progress
) -> Compilers:
    """Return the packages with which each platform compiles for each of *targets*."""
    archive = Archive(await find_mirror())
    architectures = [platform.debian for platform in PLATFORMS.values()]
    opened = await archive.indices(toolchain.suite, architectures, progress)
    indices = dict(zip(PLATFORMS, opened, strict=True))
    try:
        return {
            builder: {
                target: _packages(indices[builder], indices[target], toolchain, builder, target)
                for target in targets
            }
            for builder in PLATFORMS
        }
    finally:
        for index in opened:
            index.__exit__()


def kept_compilers(
    previous: Lock | None, toolchain: Toolchain, targets: Collection[PlatformName]
) -> Compilers | None:
    """Return what *previous* locked, or None when that no longer fits."""
    if previous is None or previous.toolchain != toolchain.name:
        return None
    if any(set(found) != set(targets) for found in previous.compilers.values()):
        return None
    return {
        builder: {
            target: [previous.artifacts[file] for file in files] for target, files in found.items()
        }
        for builder, found in previous.compilers.items()
    } or None


def _packages(
    here: SuiteIndex,
    there: SuiteIndex,
    toolchain: Toolchain,
    builder: PlatformName,
    target: PlatformName,
) -> list[Artifact]:
    wanted = PLATFORMS[target]
    if builder == target:
        names = ["binutils", "g++", "gcc"]
    else:
        triple = f"{wanted.machine}-linux-gnu".replace("_", "-")
        names = [f"{name}-{triple}" for name in ("binutils", "g++", "gcc")]
        names.append(f"libc6-dev-{wanted.debian}-cross")
    headers = there.package(f"libpython{toolchain.python}-dev")
    if headers is None:
        raise LockError(f"{toolchain.suite} has no headers of Python for {target}")
    found = closure(here, names, without=toolchain.names(builder))
    return [package.artifact() for package in (*found, headers)]
