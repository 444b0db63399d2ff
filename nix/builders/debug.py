"""Leave out of a program or library what only debuggers read; it may be most of the file.

Compilers put it behind everything that is loaded, so the file is cut there, and its table of
sections ends there. What else is left of the file stays where it is, byte for byte.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PROGRAM, _LIBRARY = 2, 3  # ET_EXEC, ET_DYN
_NOBITS = 8
_ALLOCATED = 2
_LARGEST = 16 * 1024 * 1024  # bytes of a table
_SECTION = "<IIQQQQIIQQ"
_DEBUG = (b".debug_", b".zdebug_")
_NAMES = b".shstrtab"
_UNLOADED = {b".symtab", b".strtab", b".gdb_index", _NAMES}


@dataclass(frozen=True, slots=True)
class Section:
    """An entry of the section header table."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    each: int

    @property
    def end(self) -> int:
        """Where in the file it ends; some have nothing there."""
        return self.offset + (0 if self.kind == _NOBITS else self.size)

    def packed(self) -> bytes:
        """Return the entry's bytes."""
        values = (self.name, self.kind, self.flags, self.address, self.offset, self.size)
        return struct.pack(_SECTION, *values, self.link, self.info, self.align, self.each)


def strip(path: Path) -> bool:
    """Cut the debug information off the 64-bit file *path*; False when it has none to cut.

    Then nothing of it has changed, as where anything lies behind or among it: a file that is not
    laid out as compilers do it may be read by somebody who knows how.
    """
    with path.open("rb") as file:
        if file.read(6) != b"\x7fELF\x02\x01":
            return False
    with path.open("r+b") as file:
        try:
            return _strip(file)
        except (struct.error, ValueError, IndexError):
            return False  # damaged; whoever loads it will say so


def _strip(file: IO[bytes]) -> bool:
    header = bytearray(_read(file, 0, 64))
    (kind,) = struct.unpack_from("<H", header, 16)
    segments, table = struct.unpack_from("<QQ", header, 32)
    each, count, size, many, names_at = struct.unpack_from("<HHHHH", header, 54)
    if kind not in {_PROGRAM, _LIBRARY} or size != struct.calcsize(_SECTION) or each != 56:
        return False
    rows = struct.iter_unpack(_SECTION, _read(file, table, size * many))
    sections = [Section(*row) for row in rows]
    names = _read(file, sections[names_at].offset, sections[names_at].size)
    called = [names[section.name : names.index(b"\0", section.name)] for section in sections]
    if not any(name.startswith(_DEBUG) for name in called):
        return False

    keep = len(sections)
    while _is_unloaded(sections[keep - 1], called[keep - 1]):
        keep -= 1
    kept, start = sections[:keep], min(section.offset for section in sections[keep:])
    loaded = [segments + each * count, *(section.end for section in kept)]
    loaded += _ends(_read(file, segments, each * count))
    behind = max(table + size * many, *(section.end for section in sections))
    if (
        any(name.startswith(_DEBUG) for name in called[:keep])
        or any(section.link >= keep for section in kept)
        or max(loaded) > start
        or table < start
        or behind != file.seek(0, 2)
    ):
        return False

    end = _aligned(start + len(names))
    kept.append(replace(sections[names_at], offset=start))
    struct.pack_into("<Q", header, 40, end)
    struct.pack_into("<HH", header, 60, len(kept), len(kept) - 1)
    file.seek(start)
    file.write(names.ljust(end - start, b"\0"))
    file.write(b"".join(section.packed() for section in kept))
    file.truncate()
    file.seek(0)
    file.write(header)
    return True


def _is_unloaded(section: Section, name: bytes) -> bool:
    return not section.flags & _ALLOCATED and (name in _UNLOADED or name.startswith(_DEBUG))


def _ends(segments: bytes) -> Iterator[int]:
    for _, _, offset, _, _, size, _, _ in struct.iter_unpack("<IIQQQQQQ", segments):
        yield offset + size


def _aligned(offset: int) -> int:
    return -(-offset // 8) * 8


def _read(file: IO[bytes], offset: int, size: int) -> bytes:
    """Return exactly so many bytes; struct.error when the file has not got them, or too many."""
    if offset + size > file.seek(0, 2) or size > _LARGEST:
        raise struct.error("it ends too early, or its tables are too large")
    file.seek(offset)
    return file.read(size)
