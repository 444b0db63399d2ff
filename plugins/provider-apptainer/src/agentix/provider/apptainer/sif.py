"""What a SIF file says of itself, read without trusting it.

A header, a table of descriptors, and the objects that they describe: the file system, and beside it
the definition that it was built from and the configuration that its OCI image had.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from pydantic import ValidationError

from agentix.errors import ImageError
from agentix.provider.kit import RunConfig

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC = b"SIF_MAGIC\0"
_AT = 32  # behind the line that runs it
_HEADER = struct.Struct("<32x10s3x2sx16x16x8xqq")  # magic, architecture; descriptors and where
_DESCRIPTOR = struct.Struct("<i?III qqq 32x 128s384x".replace(" ", ""))
_DEFINITION, _JSON = 0x4001, 0x4006
_MOST_OBJECTS = 512
_MOST_BYTES = 1 << 20
_NIX = b"/nix/"
_ARCHITECTURES = {
    b"01": "386",
    b"02": "amd64",
    b"03": "arm",
    b"04": "arm64",
    b"05": "ppc64",
    b"06": "ppc64le",
    b"11": "s390x",
    b"12": "riscv64",
}


@dataclass(frozen=True, slots=True)
class SifInfo:
    """*run* is the OCI image's configuration, if it is made from one.

    ``customised`` says that a definition changed the image afterwards: what its programs get is
    what its own scripts say. ``stored`` says that something in it speaks of a Nix store.
    """

    platform: str | None
    run: RunConfig | None
    customised: bool
    stored: bool


def is_sif(path: Path) -> bool:
    """Tell whether the file at *path* begins as a SIF does."""
    with path.open("rb") as file:
        return file.read(_AT + len(_MAGIC))[_AT:] == _MAGIC


def read_sif(path: Path) -> SifInfo:
    """Read what the SIF file at *path* says of itself; ImageError when it is damaged."""
    run, customised, stored = None, False, False
    try:
        with path.open("rb") as file:
            magic, architecture, total, offset = _HEADER.unpack(file.read(_HEADER.size))
            if magic != _MAGIC:
                raise ImageError(f"image {path} is no SIF file")
            end = os.fstat(file.fileno()).st_size
            for number in range(max(0, min(total, _MOST_OBJECTS))):
                entry = _read(file, offset + number * _DESCRIPTOR.size, _DESCRIPTOR.size, end)
                kind, used, _, _, _, where, size, _, name = _DESCRIPTOR.unpack(entry)
                if not used:
                    continue
                content = _read(file, where, size, end) if kind in (_DEFINITION, _JSON) else b""
                stored = stored or _NIX in content
                if kind == _DEFINITION:
                    lines = content.decode(errors="replace").splitlines()
                    customised = any(line.lstrip().startswith("%") for line in lines)
                elif name.partition(b"\0")[0] == b"oci-config.json":
                    run = RunConfig.model_validate_json(content)
    except (struct.error, ValidationError, EOFError) as error:
        raise ImageError(f"image {path} is a damaged SIF file; build or pull it again") from error
    found = _ARCHITECTURES.get(architecture)
    return SifInfo(f"linux/{found}" if found else None, run, customised, stored)


def _read(file: IO[bytes], where: int, size: int, end: int) -> bytes:
    if where < 0 or not 0 <= size <= _MOST_BYTES or where + size > end:
        raise EOFError
    file.seek(where)
    return file.read(size)
