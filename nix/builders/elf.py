"""Read what the dynamic loader will do with an ELF file, without starting a program for it.

Covers 64-bit little-endian files, which is what every supported platform has; anything else is
not recognised and left alone.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 15, 29
_MACHINES = {62: "x86_64", 183: "aarch64"}


@dataclass(frozen=True, slots=True)
class Elf:
    """A dynamically linked program (it has an ``interpreter``) or library."""

    machine: str
    interpreter: str | None
    rpath: str | None
    runpath: str | None
    needed: tuple[str, ...]

    @property
    def search(self) -> list[str]:
        """The folders that the file itself names; a DT_RUNPATH hides a DT_RPATH."""
        text = self.runpath if self.runpath is not None else self.rpath
        return text.split(":") if text else []


def read(path: Path) -> Elf | None:
    """Return how *path* is linked, or None when it is not a dynamically linked ELF file."""
    with path.open("rb") as file:
        if file.read(6) != b"\x7fELF\x02\x01":
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _parse(data)
            except (struct.error, ValueError, OverflowError):
                return None  # damaged; whoever loads it will say so


def _parse(data: mmap.mmap) -> Elf | None:
    (machine,) = struct.unpack_from("<H", data, 18)
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    loads: list[tuple[int, int, int]] = []
    interpreter: str | None = None
    dynamic: tuple[int, int] | None = None
    for index in range(count):
        kind, _, offset, address, _, length = struct.unpack_from(
            "<IIQQQQ", data, table + index * size
        )
        if kind == _PT_LOAD:
            loads.append((address, offset, length))
        elif kind == _PT_DYNAMIC:
            dynamic = (offset, length)
        elif kind == _PT_INTERP:
            interpreter = data[offset : offset + length].rstrip(b"\0").decode()
    if dynamic is None:
        return None
    entries = _entries(data, *dynamic)
    strings = next((value for tag, value in entries if tag == _DT_STRTAB), None)
    if strings is None:
        return None
    start = next((o + strings - a for a, o, n in loads if a <= strings < a + n), None)
    if start is None:
        return None

    def texts(wanted: int) -> list[str]:
        return [_text(data, start + value) for tag, value in entries if tag == wanted]

    return Elf(
        machine=_MACHINES.get(machine, str(machine)),
        interpreter=interpreter,
        rpath=next(iter(texts(_DT_RPATH)), None),
        runpath=next(iter(texts(_DT_RUNPATH)), None),
        needed=tuple(texts(_DT_NEEDED)),
    )


def _entries(data: mmap.mmap, offset: int, length: int) -> list[tuple[int, int]]:
    entries = []
    for position in range(offset, offset + length, 16):
        tag, value = struct.unpack_from("<qQ", data, position)
        if tag == _DT_NULL:
            break
        entries.append((tag, value))
    return entries


def _text(data: mmap.mmap, start: int) -> str:
    return data[start : data.find(b"\0", start)].decode("utf-8", "surrogateescape")
