"""What a build gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class BuiltBundle:
    """A bundle's tar, and the store path that it was written from.

    ``sha256`` (hex) is the bundle's identity and ``size`` that of the file. ``cached`` says that
    nothing had to be done; ``timings`` holds the seconds of each step that had.
    """

    path: Path
    sha256: str
    size: int
    name: str
    version: str
    platform: str
    store_path: Path
    cached: bool = False
    timings: Mapping[str, float] = field(default_factory=dict)
