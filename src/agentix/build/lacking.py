"""Tell which libraries the wheels of a built bundle still lack, and what to add."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from agentix.errors import AgentixError, BundleError
from agentix.platforms import PLATFORMS
from agentix.text import plain
from agentix.validation import Strict, first_fault

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agentix.platforms import PlatformName
    from agentix.progress import Progress

_FILE = "lacking.json"  # as nix/builders/environment.py writes it
_SHOWN = 5
_OF_DRIVERS = ("libcuda.so", "libnvcuvid.so", "libnvidia-")


class Lack(Strict):
    """A ``library`` that the ``file`` of an installed ``wheel`` needs and nothing has."""

    wheel: str
    file: str
    library: str


def read_lacks(environment: Path) -> list[Lack]:
    """Return what the wheels of the built *environment* lack; usually nothing."""
    try:
        return TypeAdapter(list[Lack]).validate_json((environment / _FILE).read_bytes())
    except FileNotFoundError:
        return []
    except ValidationError as error:
        raise BundleError(
            f"cannot read {environment / _FILE}: {first_fault(error)}; is this agentix whole? "
            "reinstall it"
        ) from error


def tell_lacks(
    environment: Path, suite: str, platform: PlatformName, offline: bool, progress: Progress
) -> None:
    """Warn of every library that wheels of *environment* lack, with the package that has it.

    The package is one of Debian's *suite*; which one is left open where the archive's index is
    neither in the cache nor to be had.
    """
    lacks = read_lacks(environment)
    if not lacks:
        return
    libraries = sorted({lack.library for lack in lacks})
    packages = asyncio.run(_packages(libraries, suite, platform, offline))
    lines = list(_lines(lacks, packages))
    for line in lines[:_SHOWN]:
        with progress.step("build") as step:
            step.outcome(f"warning: {plain(line, None)}")
    if more := lines[_SHOWN:]:
        with progress.step("build") as step:
            step.outcome(f"warning: {len(more)} more libraries are lacking")


def _lines(lacks: list[Lack], packages: dict[str, str]) -> Iterable[str]:
    grouped: dict[tuple[str, str], list[str]] = {}
    for lack in lacks:
        grouped.setdefault((lack.wheel, lack.library), []).append(lack.file)
    for (wheel, library), files in grouped.items():
        name = files[0].rpartition("/site-packages/")[2]
        more = f" and {len(files) - 1} more need" if files[1:] else " needs"
        yield f"{wheel}: {name}{more} {library}, which nothing in the bundle has; " + (
            _advice(library, packages.get(library))
        )


def _advice(library: str, package: str | None) -> str:
    if library.startswith(_OF_DRIVERS):
        return "it comes with the driver of a GPU, in images that have one"
    if package is None:
        return "add the Debian package that has it to [tool.agentix] system"
    return f'add it: [tool.agentix] system = ["{package}"]'


async def _packages(
    libraries: list[str], suite: str, platform: PlatformName, offline: bool
) -> dict[str, str]:
    # Slow to import, and nearly never needed.
    from agentix.build.debian.archive import Archive, find_mirror
    from agentix.build.debian.libraries import package_of

    architecture = PLATFORMS[platform].debian
    # What packages are called does not change: no build waits for a mirror to say it again.
    opened = Archive("").kept(suite, architecture)
    try:
        if opened is None and not offline:
            (opened,) = await Archive(await find_mirror()).indices(suite, [architecture])
    except AgentixError:
        pass  # the warning says enough without
    if opened is None:
        return {}
    with opened as index:
        found = {library: package_of(library, index) for library in libraries}
    return {library: package for library, package in found.items() if package is not None}
