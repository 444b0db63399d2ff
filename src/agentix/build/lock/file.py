"""The lock: everything a bundle is made of, by name and sha256, and where nothing came from.

``agentix lock`` writes it as ``bundle.lock``, the Nix expressions and ``agentix fetch`` read it. It
holds no address and no absolute path, so that it means the same on every machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self

from packaging.utils import canonicalize_name
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from agentix.build.artifact import Artifact, FileName, RelativePath, Sha256, Version
from agentix.build.declared import Declared, NixFile
from agentix.build.lock.tool import LockedTool
from agentix.build.sources import LOCK_FILE as LOCK_FILE
from agentix.build.toolchain import DebianName, PythonMinor, ToolchainName
from agentix.errors import LockError
from agentix.nix.paths import store_name
from agentix.platforms import PLATFORMS, PlatformName
from agentix.replacing import replacing
from agentix.validation import Strict, first_fault

if TYPE_CHECKING:
    from pathlib import Path


def _normalised_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", value) or canonicalize_name(value) != value:
        raise ValueError("must be a normalised distribution name")
    return value


def _inside(path: str) -> str:
    if path.split("/")[0] == "..":
        raise ValueError("must not lead out of the source")
    return path


def _named(artifacts: object) -> object:
    """Give each artifact its name, which is its key in the file."""
    if not isinstance(artifacts, dict):
        return artifacts
    return {
        file: {"file": file} | value if isinstance(value, dict) else value
        for file, value in artifacts.items()
    }


_KINDS = {  # others are wheels
    "compilers": "Debian package",
    "npm": "npm tarball",
    "sources": "source",
    "system": "Debian package",
}
# Keys that are written only with a value.
_OPTIONAL = {"build", "compiled", "compilers", "missing", "npm", "releases", "sources"}


def _kind(artifact: Artifact) -> str:
    if artifact.pool is not None:
        return "Debian package"
    if artifact.npm:
        return "npm tarball"
    return "wheel" if artifact.file.endswith(".whl") and artifact.commit is None else "source"


def _is_foreign(file: str, platform: PlatformName) -> bool:
    """Say whether a wheel or Debian package is, by its name, for other platforms only."""
    if file.endswith(".deb"):
        tags = [file.removesuffix(".deb").rpartition("_")[2]]
    else:
        tags = file.removesuffix(".whl").rpartition("-")[2].split(".")
    others = [p for name, p in PLATFORMS.items() if name != platform]
    return all(any(tag.endswith((p.machine, p.debian)) for p in others) for tag in tags)


DistributionName = Annotated[str, AfterValidator(_normalised_name)]
Sentence = Annotated[str, Field(min_length=1)]


class LockedProject(Strict):
    """A source tree that is built inside the Nix sandbox by its own backend.

    ``path`` is relative to the folder of the lock. ``backend`` names the wheels of the backend's
    environment for each platform that builds; ``missing`` says why a platform cannot build it.
    ``compiled`` says that it is written in C or C++, too.
    """

    name: DistributionName
    version: Version
    path: RelativePath
    backend: Mapping[PlatformName, tuple[FileName, ...]]
    missing: Mapping[PlatformName, Sentence] = {}
    compiled: bool = False


class LockedRelease(Strict):
    """A release that is built like a project, for the platforms for which it has no usable wheel.

    ``source`` is a source archive or a Git tree, ``path`` the folder of the project in it;
    the rest is as for projects.
    """

    source: FileName
    path: Annotated[RelativePath, AfterValidator(_inside)] = "."
    backend: Mapping[PlatformName, tuple[FileName, ...]]
    missing: Mapping[PlatformName, Sentence] = {}
    compiled: bool = False


class Target(Strict):
    """What the bundle for one platform holds besides the projects and the toolchain.

    ``sources`` are those of the releases that have to be built. ``missing`` is set when the bundle
    cannot be made for this platform, and says why.
    """

    wheels: tuple[FileName, ...]
    sources: tuple[FileName, ...] = ()
    system: tuple[FileName, ...] = ()
    missing: Sentence | None = None


class Lock(Strict):
    """The resolved inputs of a bundle. The project itself is the first of ``projects``."""

    format: Literal[1] = 1
    name: DistributionName
    version: Version
    inputs: Sha256
    toolchain: ToolchainName
    python: PythonMinor
    projects: Annotated[tuple[LockedProject, ...], Field(min_length=1)]
    releases: tuple[LockedRelease, ...] = ()
    compilers: Mapping[PlatformName, Mapping[PlatformName, tuple[FileName, ...]]] = {}
    build: tuple[DebianName, ...] = ()
    system: tuple[DebianName, ...] = ()
    npm: tuple[LockedTool, ...] = ()
    nix: NixFile | None = None
    plugins: Mapping[DistributionName, Declared] | None = None
    platforms: Annotated[Mapping[PlatformName, Target], Field(min_length=1)]
    artifacts: Annotated[Mapping[FileName, Artifact], BeforeValidator(_named)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [project.name for project in self.projects]
        if len(set(names)) != len(names):
            raise ValueError("projects: two have the same name")
        if self.projects[0].path != ".":
            raise ValueError("projects: the first must be the project itself, at '.'")
        if self.projects[0].version != self.version:
            raise ValueError(f"version: it is that of the project, {self.projects[0].version}")
        for where, platform, files in self._uses():
            for file in files:
                self._check_use(where, platform, file)
            if len(set(files)) != len(files):
                raise ValueError(f"{where}: one file comes twice")
        known = {release.source for release in self.releases}
        for platform, target in self.platforms.items():
            if unknown := set(target.sources) - known:
                raise ValueError(f"platforms.{platform}.sources: no release has {min(unknown)!r}")
            there = {self.artifacts[file].package for file in target.system}
            declared = set(self.system) if not target.missing else set()
            if not declared <= there or (there and not self.system):
                raise ValueError(f"platforms.{platform}.system: it is not what system declares")
            lacking = [tool.release for tool in self.npm if platform not in tool.targets]
            if lacking and not target.missing:
                raise ValueError(f"npm: {lacking[0]} has nothing for {platform}")
        for file, artifact in self.artifacts.items():
            if artifact.file != file:
                raise ValueError(f"artifacts: {file!r} is the key of {artifact.file!r}")
        kept = {store_name(file) for file in self.artifacts}
        if len(kept) != len(self.artifacts):
            raise ValueError("artifacts: two have the same name in the Nix store")
        return self

    def _uses(self) -> Iterator[tuple[str, PlatformName, tuple[str, ...]]]:
        for project in self.projects:
            for platform, files in project.backend.items():
                yield f"projects.{project.name}.backend.{platform}", platform, files
        for release in self.releases:
            for platform, files in release.backend.items():
                yield f"releases.{release.source}.backend.{platform}", platform, files
        for builder, compilers in self.compilers.items():
            for platform, files in compilers.items():
                yield f"{builder}.{platform}.compilers", builder, files
        for platform, target in self.platforms.items():
            yield f"platforms.{platform}.wheels", platform, target.wheels
            yield f"platforms.{platform}.sources", platform, target.sources
            yield f"platforms.{platform}.system", platform, target.system
        for tool in self.npm:
            for platform, files in tool.files():
                yield f"npm.{tool.name}.{platform}.npm", platform, tuple(sorted(set(files)))

    def _check_use(self, where: str, platform: PlatformName, file: str) -> None:
        artifact = self.artifacts.get(file)
        if artifact is None:
            raise ValueError(f"{where}: {file!r} is not among the artifacts")
        if _kind(artifact) != _KINDS.get(where.rpartition(".")[2], "wheel"):
            raise ValueError(f"{where}: {file!r} is of the wrong kind, {_kind(artifact)}")
        if _is_foreign(file, platform) and not where.endswith(".compilers"):  # headers of the other
            raise ValueError(f"{where}: {file!r} is for another platform")

    def dumps(self) -> str:
        """Return the text of the lock file: equal locks give equal bytes."""
        unnamed = {"artifacts": {"__all__": {"file"}}}
        data = self.model_dump(mode="json", exclude_none=True, exclude=unnamed)
        for part in (data, *data["projects"], *data["releases"], *data["platforms"].values()):
            for key in _OPTIONAL & part.keys():
                if not part[key]:
                    del part[key]
        return json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    def save(self, path: Path) -> bool:
        """Write the lock to *path* in one step; say whether that changed the file."""
        text = self.dumps()
        try:
            if path.read_text(encoding="utf-8") == text:
                return False
        except (OSError, UnicodeDecodeError):
            pass
        with replacing(path) as draft:
            draft.write_text(text, encoding="utf-8", newline="\n")
        return True


def loads(text: str | bytes, *, where: str = LOCK_FILE) -> Lock:
    """Return the lock in *text*; LockError says what is wrong with it, calling it *where*."""
    try:
        return Lock.model_validate_json(text)
    except ValidationError as error:
        raise LockError(
            f"cannot read {where}: {first_fault(error)}; run `agentix lock` to write it afresh"
        ) from error


def load(path: Path) -> Lock:
    """Return the lock in the file *path*; LockError when it is missing or damaged."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise LockError(f"there is no {path}; run `agentix lock` to write it") from None
    except OSError as error:
        raise LockError(f"cannot read {path}: {error.strerror}") from error
    return loads(text, where=str(path))
