"""System tools: the Debian packages that a project declares, locked for every platform."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.build.artifact import Artifact
from agentix.build.debian.archive import Archive, find_mirror
from agentix.build.debian.corrections import corrections
from agentix.build.debian.packages import closure
from agentix.errors import ProjectError
from agentix.platforms import PLATFORMS, PlatformName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentix.build.lock.file import Lock
    from agentix.build.toolchain import Toolchain
    from agentix.progress import Progress

Packages = dict[str, Artifact]

# Debian's names for whichever Python 3 is the default one.
_PYTHON = ("libpython3-stdlib", "python3", "python3-minimal")


def declared_tools(names: Sequence[str]) -> list[str]:
    """Return *names*, each once and in their order, less the data that every bundle has.

    The order matters: of a program that two packages have, the first one's is taken.
    """
    return [name for name in dict.fromkeys(names) if not corrections().is_present(name)]


def refuse_what_is_there(names: Sequence[str], toolchain: Toolchain) -> None:
    """Raise ProjectError when one of *names* is what every bundle of *toolchain* has anyway.

    A second interpreter or C library beside the bundle's own would be used by none of its parts.
    """
    known = set(_PYTHON).union(*(toolchain.names(platform) for platform in PLATFORMS))
    for name in declared_tools(names):
        if name in known:
            raise ProjectError(
                f"[tool.agentix] system: {name!r} is already part of every bundle, by its "
                f"toolchain {toolchain.name}; remove it there"
            )


async def lock_system_tools(
    names: Sequence[str], toolchain: Toolchain, progress: Progress
) -> Mapping[PlatformName, Packages]:
    """Return the packages that *names* need on each platform beyond those of *toolchain*.

    They come from the toolchain's own suite, so that their libraries are the toolchain's. Raises
    LockError for a name that the suite does not have.
    """
    names = declared_tools(names)
    if not names:
        return {platform: {} for platform in PLATFORMS}
    archive = Archive(await find_mirror())
    architectures = [platform.debian for platform in PLATFORMS.values()]
    indices = await archive.indices(toolchain.suite, architectures, progress)
    locked: dict[PlatformName, Packages] = {}
    for platform, index in zip(PLATFORMS, indices, strict=True):
        with index:
            packages = closure(index, names, without=toolchain.names(platform))
        locked[platform] = {file.file: file for file in (p.artifact() for p in packages)}
    return locked


def kept_system_tools(
    previous: Lock | None, names: Sequence[str], toolchain: Toolchain
) -> Mapping[PlatformName, Packages] | None:
    """Return what *previous* locked for the same tools, or None when that no longer fits."""
    if previous is None or previous.toolchain != toolchain.name:
        return None
    if set(previous.system) != set(declared_tools(names)) or set(previous.platforms) != set(
        PLATFORMS
    ):
        return None
    kept: dict[PlatformName, Packages] = {}
    for platform, target in previous.platforms.items():
        packages = {file: previous.artifacts[file] for file in target.system}
        if any(p.pool is None or p.package in toolchain.names(platform) for p in packages.values()):
            return None
        kept[platform] = packages
    return kept
