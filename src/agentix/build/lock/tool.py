"""A command-line tool from npm, as a lock has it: which files it is, and which are programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from agentix.build.artifact import FileName, PoolPath
from agentix.build.declared import NPM_NAME, NPM_VERSION
from agentix.platforms import PlatformName
from agentix.validation import Strict

if TYPE_CHECKING:
    from collections.abc import Iterator


NpmName = Annotated[str, Field(pattern=NPM_NAME, max_length=214)]
NpmVersion = Annotated[str, Field(pattern=NPM_VERSION, max_length=128)]


class ToolTarget(Strict):
    """A tool on one platform: its tarballs by where they lie, its programs by where they are.

    ``node`` says that Node runs one of the programs.
    """

    packages: Annotated[Mapping[PoolPath, FileName], Field(min_length=1)]
    programs: Annotated[Mapping[FileName, PoolPath], Field(min_length=1)]
    node: bool = False


class LockedTool(Strict):
    """A command-line tool from npm, for each platform that it runs on."""

    name: NpmName
    version: NpmVersion
    targets: Annotated[Mapping[PlatformName, ToolTarget], Field(min_length=1)]

    @property
    def release(self) -> str:
        """Name and version, as one asks for it."""
        return f"{self.name}@{self.version}"

    def files(self) -> Iterator[tuple[PlatformName, tuple[str, ...]]]:
        """Yield the tarballs for each platform."""
        for platform, target in self.targets.items():
            yield platform, tuple(target.packages.values())
