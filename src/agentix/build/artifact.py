"""What a build starts from: files known by name and hash, wherever they are brought from."""

from __future__ import annotations

import posixpath
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from agentix.nix.paths import fixed_path, store_name
from agentix.validation import Strict

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_STORE_NAME = 211


def _file_name(value: str) -> str:
    if not value or value.startswith(".") or "/" in value or _CONTROL.search(value):
        raise ValueError("must be a plain file name")
    if len(value) > _LONGEST_STORE_NAME:
        raise ValueError(f"must be at most {_LONGEST_STORE_NAME} characters long")
    return value


def _relative(value: str) -> str:
    if posixpath.isabs(value) or "\\" in value or ":" in value or _CONTROL.search(value):
        raise ValueError("must be a relative POSIX path")
    if value != posixpath.normpath(value):
        raise ValueError("must be a normalised path")
    return value


def _below_archive(value: str) -> str:
    if _relative(value).split("/")[0] in {"..", "."}:
        raise ValueError("must lie below the archive's root")
    return value


FileName = Annotated[str, AfterValidator(_file_name)]
RelativePath = Annotated[str, AfterValidator(_relative)]
PoolPath = Annotated[str, AfterValidator(_below_archive)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
Version = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+~:!_-]*$")]


class Artifact(Strict):
    """A wheel or source archive, or a Debian package when ``pool`` says where an archive has it.

    ``size`` is None where nobody tells it. ``direct`` says that it is in no index: the project's
    own settings have its address. With ``commit`` it is no file but the source tree of that Git
    commit, and ``sha256`` is that of its NAR. ``npm`` says that it is a tarball of npm's.
    """

    file: FileName
    package: Annotated[str, Field(pattern=r"^(@[0-9A-Za-z~._-]+/)?[0-9A-Za-z~_][0-9A-Za-z~+._-]*$")]
    version: Version
    sha256: Sha256
    size: Annotated[int, Field(gt=0)] | None = None
    pool: PoolPath | None = None
    direct: Literal[True] | None = None
    commit: Commit | None = None
    npm: Literal[True] | None = None

    @property
    def store_path(self) -> str:
        """Where the store keeps the file, or the tree."""
        return fixed_path(store_name(self.file), self.sha256, recursive=self.commit is not None)


class Seed(Strict):
    """A static program that derivations start from: the ``member`` of an artifact.

    In the store it is a folder called ``store`` with the program ``bin/<store>``; ``sha256`` is
    that of the folder's NAR.
    """

    store: FileName
    sha256: Sha256
    member: RelativePath
    artifact: Artifact

    @property
    def store_path(self) -> str:
        """Where the store keeps the folder."""
        return fixed_path(self.store, self.sha256, recursive=True)
