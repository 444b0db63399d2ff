"""The pinned toolchains: which Debian packages make the interpreter that bundles carry.

The pins are data next to the Nix expressions (``nix/toolchains/*.json``), written by
``tools/pin_toolchains.py`` and read by Nix, by ``agentix lock`` and by ``agentix fetch``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import Field, ValidationError

from agentix.build.artifact import Artifact, Seed
from agentix.build.expressions import expressions
from agentix.errors import LockError, ProjectError
from agentix.platforms import PlatformName
from agentix.validation import Strict, first_fault

if TYPE_CHECKING:
    from pathlib import Path

    from packaging.specifiers import SpecifierSet


DebianName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]
ToolchainName = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
PythonMinor = Annotated[str, Field(pattern=r"^3\.[0-9]+$")]

_T = TypeVar("_T", bound=Strict)


class Toolchain(Strict):
    """A complete CPython and its C libraries, as Debian packages of one suite."""

    format: Literal[1] = 1
    name: ToolchainName
    suite: DebianName
    python: PythonMinor
    glibc: Annotated[str, Field(pattern=r"^2\.[0-9]+$")]
    packages: Mapping[PlatformName, tuple[Artifact, ...]]

    def names(self, platform: PlatformName) -> frozenset[str]:
        """Return the names of the Debian packages that the toolchain holds on *platform*."""
        return frozenset(pin.package for pin in self.packages[platform])

    def python_version(self, platform: PlatformName) -> str:
        """Return the interpreter's full version on *platform*, such as ``3.11.2``."""
        for pin in self.packages[platform]:
            if pin.package == f"python{self.python}-minimal":
                found = re.match(r"[0-9.]+", pin.version)
                if found:
                    return found[0].rstrip(".")
        raise LockError(f"toolchain {self.name} has no interpreter for {platform}")


class Seeds(Strict):
    """The static programs for each platform by name, and the wheels that the builders use."""

    format: Literal[1] = 1
    programs: Mapping[PlatformName, Mapping[str, Seed]]
    wheels: tuple[Artifact, ...]


def toolchains_folder() -> Path:
    """Return the folder of the pins."""
    return expressions() / "toolchains"


@functools.cache
def toolchains() -> Mapping[str, Toolchain]:
    """Return every pinned toolchain by name, oldest Python first."""
    files = toolchains_folder().glob("*.json")
    found = [_read(file, Toolchain) for file in files if file.name != "seeds.json"]
    if not found:
        raise LockError(f"no toolchain is pinned in {toolchains_folder()}; reinstall agentix")
    return {
        toolchain.name: toolchain
        for toolchain in sorted(found, key=lambda t: int(t.python.partition(".")[2]))
    }


@functools.cache
def seeds() -> Seeds:
    """Return the static programs and the builders' wheels."""
    return _read(toolchains_folder() / "seeds.json", Seeds)


def _read(file: Path, model: type[_T]) -> _T:
    try:
        return model.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        raise LockError(f"the pins {file} are missing; reinstall agentix") from None
    except ValidationError as error:
        raise LockError(f"cannot read the pins {file}: {first_fault(error)}") from error


def choose(
    requires_python: SpecifierSet,
    *,
    asked: str | None = None,
    preferred: Sequence[str] = (),
    project: str = "the project",
) -> Toolchain:
    """Return the toolchain for a project.

    That is the one *asked* for, else the first of the *preferred* minor versions that
    *requires_python* admits, else the newest that it admits. Raises ProjectError when none will do.
    """
    pinned = list(toolchains().values())
    listed = ", ".join(f"{t.python} ({t.name})" for t in pinned)
    admitted = [t for t in pinned if all(_admits(requires_python, t, p) for p in t.packages)]
    if asked is not None:
        wanted = next((t for t in pinned if t.python == asked), None)
        if wanted is None:
            raise ProjectError(f"there is no toolchain with Python {asked}; choose one of {listed}")
        if wanted not in admitted:
            version = wanted.python_version("linux/amd64")
            raise ProjectError(
                f"{project} asks for Python {asked}, which is {version} in {wanted.name}, "
                f"but its requires-python is {str(requires_python)!r}"
            )
        return wanted
    if not admitted:
        raise ProjectError(
            f"no toolchain satisfies requires-python = {str(requires_python)!r} of {project}; "
            f"there are {listed}"
        )
    for minor in preferred:
        for candidate in admitted:
            if candidate.python == minor:
                return candidate
    return admitted[-1]


def _admits(requires_python: SpecifierSet, toolchain: Toolchain, platform: PlatformName) -> bool:
    return requires_python.contains(toolchain.python_version(platform), prereleases=True)
