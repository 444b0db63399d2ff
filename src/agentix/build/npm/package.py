"""One release at npm: what it says about itself, and what it needs beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from agentix.build.declared import NPM_NAME, NPM_VERSION

if TYPE_CHECKING:
    from agentix.platforms import Platform

# npm's names of what our platforms are.
_CPU = {"x86_64": "x64", "aarch64": "arm64"}
_OS, _LIBC = "linux", "glibc"

_SCRIPTS = ("preinstall", "install", "postinstall")


def _words(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _table(value: object) -> object:
    return value if isinstance(value, dict) else {}


def _names(value: object) -> object:
    return value if isinstance(value, list) else ()


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Versions = Annotated[Mapping[str, str], BeforeValidator(_table)]


class Package(BaseModel):
    """A release as a registry, a package.json or a package-lock.json describes it.

    Nobody has checked what it says; of what is not asked about here nothing is read.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    name: Annotated[str, Field(pattern=NPM_NAME, max_length=214)]
    version: Annotated[str, Field(pattern=NPM_VERSION, max_length=128)]
    dependencies: Versions = {}
    optional: Annotated[Versions, Field(alias="optionalDependencies")] = {}
    peers: Annotated[Versions, Field(alias="peerDependencies")] = {}
    bundled: Annotated[
        tuple[str, ...],
        BeforeValidator(_names),
        Field(validation_alias=AliasChoices("bundleDependencies", "bundledDependencies")),
    ] = ()
    os: Words = ()
    cpu: Words = ()
    libc: Words = ()
    bin: str | Mapping[str, str] = {}
    scripts: Annotated[Mapping[str, Any], BeforeValidator(_table)] = {}
    has_install_script: Annotated[bool, Field(alias="hasInstallScript")] = False
    has_shrinkwrap: Annotated[bool, Field(alias="_hasShrinkwrap")] = False
    integrity: str | None = None
    within: Annotated[bool, Field(alias="inBundle")] = False

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def programs(self) -> dict[str, str]:
        """The programs that it offers: name, and path in it."""
        if isinstance(self.bin, str):
            return {self.name.rpartition("/")[2]: self.bin}
        return dict(self.bin)

    @property
    def required(self) -> dict[str, str]:
        """The packages that it cannot do without; npm names an optional one as both."""
        return {n: v for n, v in self.dependencies.items() if n not in self.optional}

    @property
    def scripted(self) -> bool:
        """Whether it wants to run something of its own when it is installed."""
        return self.has_install_script or any(self.scripts.get(name) for name in _SCRIPTS)

    @property
    def native(self) -> bool:
        """Whether it is for some platforms only."""
        return bool(self.os or self.cpu)

    def fits(self, platform: Platform) -> bool:
        """Say whether it runs on *platform*, whose C library is always glibc."""
        return self.for_linux and _admits(self.cpu, _CPU[platform.machine]) and self._for_glibc

    @property
    def for_linux(self) -> bool:
        """Whether it runs on some Linux."""
        return _admits(self.os, _OS)

    @property
    def _for_glibc(self) -> bool:
        # Not every registry passes this field on, and then only the name tells.
        return _admits(self.libc, _LIBC) and (bool(self.libc) or "musl" not in self.name)


def _admits(words: tuple[str, ...], value: str) -> bool:
    """Say whether a list of npm's, in which ``!`` excludes, has *value*."""
    excluded = [word[1:] for word in words if word.startswith("!")]
    if value in excluded:
        return False
    return len(excluded) == len(words) or value in words or words == ("any",)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Exactly one release."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def file(self) -> str:
        """The name of its tarball here; scopes keep apart what registries call the same."""
        return f"{self.name.removeprefix('@').replace('/', '+')}-{self.version}.tgz"


def exactly(name: str, spec: str) -> Wanted | None:
    """Return the one release that the dependency *spec* of *name* means, None if it is a choice."""
    if spec.startswith("npm:"):  # another package, under this name
        name, _, spec = spec.removeprefix("npm:").rpartition("@")
    known = re.fullmatch(NPM_NAME, name) and re.fullmatch(NPM_VERSION, spec)
    return Wanted(name, spec) if known else None
