"""Which wheel of a release runs in a bundle: the target's tags and markers, packaging's choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.pylock import (
    Package,
    PackageArchive,
    PackageDirectory,
    PackageSdist,
    PackageVcs,
    PackageWheel,
    Pylock,
    PylockSelectError,
)
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from agentix.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.markers import Environment
    from packaging.tags import Tag

    from agentix.build.toolchain import Toolchain
    from agentix.platforms import Platform

# manylinux began with glibc 2.5 on x86_64 and 2.17 on aarch64; each spelling is one of these.
_OLDEST_GLIBC = {"x86_64": 5, "aarch64": 17}
_SOURCES = {"sdist", "archive", "directory", "vcs"}
_NOWHERE = "nowhere"
_LEGACY_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True, slots=True)
class Selection:
    """What a bundle for one platform takes from a resolution."""

    wheels: tuple[tuple[Package, PackageWheel], ...]
    sources: tuple[tuple[Package, PackageSdist | PackageArchive | PackageVcs], ...]  # to be built
    directories: tuple[tuple[str, str], ...]  # name, path


@dataclass(frozen=True, slots=True)
class Unusable:
    """A release that has neither a wheel for the target nor a source, and why."""

    package: str
    reason: str


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The interpreter of a bundle on one platform: what wheels and markers ask about."""

    toolchain: Toolchain
    platform: Platform

    def __str__(self) -> str:
        return f"Python {self.toolchain.python} on {self.platform}"

    @property
    def version(self) -> str:
        """The interpreter's full version."""
        return self.toolchain.python_version(self.platform.name)

    def environment(self) -> Environment:
        """Return what markers see: the bundle's interpreter, not this machine's."""
        return {
            "implementation_name": "cpython",
            "implementation_version": self.version,
            "os_name": "posix",
            "platform_machine": self.platform.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "5.10.0",  # a bundle does not know its kernel: any of today's
            "platform_system": "Linux",
            "platform_version": "#1 SMP",
            "python_full_version": self.version,
            "python_version": self.toolchain.python,
            "sys_platform": "linux",
        }

    def tags(self) -> list[Tag]:
        """Return the wheel tags that run here, the best first."""
        major, minor = map(int, self.toolchain.python.split("."))
        platforms = list(self._platform_tags())
        interpreter = f"cp{major}{minor}"
        return [
            *cpython_tags((major, minor), abis=[interpreter], platforms=platforms),
            *compatible_tags((major, minor), interpreter=interpreter, platforms=platforms),
        ]

    def _platform_tags(self) -> Iterator[str]:
        machine = self.platform.machine
        newest = int(self.toolchain.glibc.partition(".")[2])
        for minor in range(newest, _OLDEST_GLIBC[machine] - 1, -1):
            yield f"manylinux_2_{minor}_{machine}"
            if minor in _LEGACY_NAMES:
                yield f"{_LEGACY_NAMES[minor]}_{machine}"
        yield f"linux_{machine}"


def read(data: dict[str, Any]) -> Pylock:
    """Return the resolution in *data*, a pylock.toml as uv writes it.

    Every release gets a source archive, so that the choice falls on that when no wheel is usable.
    uv leaves out the wheels that can never be, which may be all that there are.

    Raises PylockValidationError when it is no such file.
    """
    packages = [
        package if _SOURCES & package.keys() else package | {"sdist": _no_sdist(package)}
        for package in data.get("packages", [])
    ]
    return Pylock.from_dict(data | {"packages": packages})


def _no_sdist(package: dict[str, Any]) -> dict[str, Any]:
    name = f"{package.get('name')}-{package.get('version')}.tar.gz"
    return {"name": name, "path": _NOWHERE, "hashes": {"sha256": ""}}


def select(lock: Pylock, target: Interpreter) -> tuple[Selection, list[Unusable]]:
    """Choose for *target* from a resolution; what has neither wheel nor source is told apart."""
    wheels: list[tuple[Package, PackageWheel]] = []
    sources: list[tuple[Package, PackageSdist | PackageArchive | PackageVcs]] = []
    directories: list[tuple[str, str]] = []
    unusable: list[Unusable] = []
    try:
        chosen = list(lock.select(environment=target.environment(), tags=target.tags()))
    except PylockSelectError as error:
        raise LockError(f"cannot choose packages for {target}: {error}") from error
    for package, source in chosen:
        if isinstance(source, PackageWheel):
            wheels.append((package, source))
        elif isinstance(source, PackageDirectory):
            directories.append((package.name, source.path))
        elif isinstance(source, PackageSdist) and source.path == _NOWHERE:
            unusable.append(Unusable(package.name, _no_wheel(package, target)))
        elif isinstance(source, PackageArchive) and (wheel := _as_wheel(source)) is not None:
            if parse_wheel_filename(wheel.filename)[3].isdisjoint(target.tags()):
                alone = replace(package, archive=None, wheels=[wheel])
                unusable.append(Unusable(package.name, _no_wheel(alone, target)))
            else:
                wheels.append((package, wheel))
        else:
            sources.append((package, source))
    return Selection(tuple(wheels), tuple(sources), tuple(directories)), unusable


def _as_wheel(archive: PackageArchive) -> PackageWheel | None:
    """Return the *archive* as the wheel that it is, by its name."""
    place = archive.path if archive.path is not None else unquote(urlsplit(archive.url or "").path)
    name = place.rpartition("/")[2]
    if not name.endswith(".whl"):
        return None
    try:
        parse_wheel_filename(name)
    except InvalidWheelFilename as error:
        raise LockError(f"{name} is not the name of a wheel: {error}") from error
    return PackageWheel(
        name=name, url=archive.url, path=archive.path, size=archive.size, hashes=archive.hashes
    )


def _no_wheel(package: Package, target: Interpreter) -> str:
    release = f"{package.name} {package.version}"
    if not package.wheels:
        return (
            f"{release} has no wheel for Linux, and no source archive: "
            "choose another version, or depend on it only where it runs"
        )
    tags = sorted({str(tag) for w in package.wheels for tag in parse_wheel_filename(w.filename)[3]})
    shown = ", ".join(tags[:12]) + (f" and {len(tags) - 12} more" if len(tags) > 12 else "")
    return f"{release} has no wheel for {target}; its wheels are for {shown}"
