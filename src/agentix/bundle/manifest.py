"""What a bundle says about itself: first in its tar, and the last to be written in a cache."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic import model_validator as _model_validator

from agentix.bundle.inventory import Name, Needs, Package, Sha256, Size, Text, Tool
from agentix.errors import BundleError
from agentix.validation import Strict, first_fault

FORMAT = 2
MAX_MANIFEST_BYTES = 16 * 1024 * 1024

PlatformName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{1,32}/[a-z0-9_]{1,32}$")]
StoreName = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-df-np-sv-z]{32}-[0-9A-Za-z+._?=-]{1,211}$"),
]


class StoreObject(Strict):
    """The content of one store path: the hash and the size of its NAR serialisation."""

    sha256: Sha256
    size: Size


class Info(Strict):
    """What the build knows of a bundle: the ``info.json`` of its root store path.

    ``base`` lists the Debian packages of the interpreter and its C libraries; bundles of format 1
    have none, and of packages and tools only name and version. ``plugins`` says which of the
    packages have asked for tools.
    """

    format: Literal[1, 2]
    name: Name
    version: Text
    platform: PlatformName
    python: Text
    toolchain: Name
    libc: Text
    protocol: Annotated[int, Field(ge=0, le=2**31)]
    agentix: Text
    packages: tuple[Package, ...]
    tools: tuple[Tool, ...]
    base: tuple[Tool, ...] = ()
    plugins: dict[Name, Needs] = Field(default_factory=dict)

    @_model_validator(mode="after")
    def _has_what_its_format_has(self) -> Self:
        if ("base" in self.model_fields_set) != (self.format > 1):
            what = "needs" if self.format > 1 else "has no"
            raise ValueError(f"format {self.format} {what} base")
        return self

    @classmethod
    def parse(cls, data: bytes, *, label: str = "info.json") -> Self:
        """Read *data*, which nobody has checked before.

        Raises BundleError, one line that begins with *label*.
        """
        try:
            found = _Format.model_validate_json(data).format
            if found > FORMAT:
                raise BundleError(
                    f"{label}: bundle format {found} is newer than {FORMAT}, the newest that this"
                    " Agentix reads; upgrade agentix"
                )
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise BundleError(f"{label} cannot be read: {first_fault(error)}") from error

    def _set(self, model: type[Info]) -> dict[str, Any]:
        return {
            name: getattr(self, name)
            for name in model.model_fields
            if name in self.model_fields_set
        }

    def to_bytes(self) -> bytes:
        """Return the one JSON text of this value: sorted, indented, with a final newline."""
        # Only what was set: a newer Agentix with more fields must write old manifests unchanged.
        value: Any = self.model_dump(mode="json", exclude_unset=True)
        return (json.dumps(value, sort_keys=True, indent=2) + "\n").encode("ascii")


class Manifest(Info):
    """The whole description: the build's knowledge, every store path's content, and the root."""

    closure: Annotated[dict[StoreName, StoreObject], Field(min_length=1)]
    root: StoreName

    @_model_validator(mode="after")
    def _root_is_in_the_closure(self) -> Self:
        if self.root not in self.closure:
            raise ValueError("root is not one of the closure's store paths")
        return self

    @classmethod
    def of(cls, info: Info, closure: dict[str, StoreObject], root: str) -> Self:
        """Join what the build knows with what Nix knows."""
        known = info._set(Info)
        try:
            return cls(**known, closure=closure, root=root)
        except ValidationError as error:
            raise BundleError(f"{root} cannot become a bundle: {first_fault(error)}") from error

    @property
    def info(self) -> Info:
        """The part that the build wrote."""
        return Info(**self._set(Info))

    @property
    def runtime(self) -> str:
        """Where ``/nix/runtime`` points inside a sandbox."""
        return f"/nix/store/{self.root}/runtime"

    @property
    def title(self) -> str:
        """Name and version, as people say it."""
        return f"{self.name} {self.version}"


class _Format(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)
    format: int
