"""Which platform the programs of an image are for, when it does not say so itself."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from agentix.errors import ImageError
from agentix.provider.images.scoped import resolve

if TYPE_CHECKING:
    from pathlib import Path

_CANDIDATES = ("bin/sh", "bin/busybox", "usr/bin/env", "usr/bin/bash", "sbin/init")
_MACHINES = {
    8: "linux/mips",
    21: "linux/ppc64",
    22: "linux/s390x",
    40: "linux/arm",
    62: "linux/amd64",
    183: "linux/arm64",
    243: "linux/riscv64",
    258: "linux/loong64",
}


def platform_of(root: Path) -> str | None:
    """Return the platform of the first well-known program below *root*; None when in doubt."""
    for name in _CANDIDATES:
        try:
            path = resolve(root, name)
            if not path.is_file():
                continue
            with path.open("rb") as file:
                header = file.read(20)
        except (OSError, ImageError):
            continue
        if len(header) == 20 and header[:4] == b"\x7fELF":
            (machine,) = struct.unpack("<H" if header[5] == 1 else ">H", header[18:20])
            return _MACHINES.get(machine)
    return None
