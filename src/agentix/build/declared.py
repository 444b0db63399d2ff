"""What a project or a plugin declares that it needs besides Python: plain values, never code."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from agentix.build.artifact import PoolPath
from agentix.build.toolchain import DebianName
from agentix.validation import Strict

_PART = r"[A-Za-z0-9~_-][A-Za-z0-9~._-]*"
NPM_NAME = rf"^(@{_PART}/)?{_PART}$"
NPM_VERSION = r"^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$"


def _one_release(value: str) -> str:
    split_release(value)
    return value


def _nix_file(value: str) -> str:
    if not value.endswith(".nix"):
        raise ValueError('must be a Nix file, such as "default.nix"')
    return value


def split_release(release: str) -> tuple[str, str]:
    """Return name and version of ``name@version``; ValueError when it is not one release."""
    name, _, version = release.rpartition("@")
    if not (re.fullmatch(NPM_NAME, name) and re.fullmatch(NPM_VERSION, version)):
        raise ValueError('must be a name and one version, such as "prettier@3.6.2"')
    return name, version


NpmRelease = Annotated[str, AfterValidator(_one_release)]
NixFile = Annotated[PoolPath, AfterValidator(_nix_file)]


class Declared(Strict):
    """The settings ``system``, ``npm`` and ``nix``, which mean the same wherever they are written.

    ``system`` names Debian packages, ``npm`` releases of command-line tools, and ``nix`` a Nix file
    relative to where this was declared.
    """

    system: list[DebianName] = Field(default_factory=list)
    npm: list[NpmRelease] = Field(default_factory=list)
    nix: NixFile | None = None

    def lines(self) -> list[str]:
        """Return all of it for a reader, one thing a line."""
        found = [f"system {name}" for name in self.system]
        found += [f"npm {release}" for release in self.npm]
        return found + ([f"nix {self.nix}"] if self.nix else [])
