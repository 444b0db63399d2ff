"""What a sandbox is made from: the image, the bundle, and what it may use."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    field_validator,
)

from agentix import platforms

_MEMORY = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def _parse_memory(value: object) -> object:
    """Turn ``"16g"`` into bytes, with units of 1024 as container engines have them."""
    if not isinstance(value, str):
        return value
    match = _MEMORY.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"memory {value!r} is not a size; write bytes, or a number and k, m, g, t")
    return int(Fraction(match[1]) * _UNITS[match[2].lower()])


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


Text = Annotated[str, BeforeValidator(_as_text), Field(min_length=1)]


Memory = Annotated[StrictInt, BeforeValidator(_parse_memory), Field(gt=0, lt=2**60)]


class SandboxResource(BaseModel):
    """What a sandbox may use; a provider enforces each that is set, or refuses.

    ``cpu`` counts cores, ``memory`` is bytes or a size such as ``"16g"``, ``gpu`` counts devices.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu: Annotated[float, Field(gt=0, le=2**20, allow_inf_nan=False)] | None = None
    memory: Memory | None = None
    gpu: Annotated[StrictInt, Field(gt=0, le=1024)] | None = None

    def requested(self) -> list[str]:
        """Return the names of the limits that are set."""
        return [name for name in type(self).model_fields if getattr(self, name) is not None]


class SandboxConfig(BaseModel):
    """One sandbox to be: a task image that stays as it is, and a bundle beside it.

    ``image`` is what the provider understands by it. ``bundle`` is a bundle file, a deployed cache
    entry, ``sha256-…``, or a ``result`` of ``nix build``. ``platform`` is checked against both.
    ``env`` is added to the image's environment.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: Text
    bundle: str | Path
    platform: str | None = None
    env: dict[str, str] | None = None
    resource: SandboxResource | None = None

    @field_validator("platform")
    @classmethod
    def _known_platform(cls, value: str | None) -> str | None:
        return value if value is None else platforms.parse(value).name

    @field_validator("image", "bundle")
    @classmethod
    def _possible_name(cls, value: str | Path) -> str | Path:
        if "\0" in str(value):
            raise ValueError(f"{str(value)!r} has a NUL in it, which no name can have")
        return value

    @field_validator("bundle")
    @classmethod
    def _some_bundle(cls, value: str | Path) -> str | Path:
        if not str(value).strip():
            raise ValueError("bundle is empty; give a bundle file or what `agentix deploy` printed")
        return value

    @field_validator("env")
    @classmethod
    def _possible_environment(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        for name, text in (value or {}).items():
            if not name or "=" in name or "\0" in name or "\0" in text:
                raise ValueError(f"env has {name!r}, which cannot be an environment variable")
        return value
