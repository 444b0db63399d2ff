"""Give a large program another loader and search path, in place: only a little is appended to it.

patchelf holds a file twice in memory, which is too much for programs of hundreds of megabytes. Here
a new segment at the end of the file holds the loader's path, the dynamic section and its strings; a
note's entry in the table of segments makes room for it. What the file holds otherwise stays where
it is, whatever has been put into it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LOAD, _DYNAMIC, _INTERP, _NOTE = 1, 2, 3, 4
_NULL, _STRTAB, _STRSZ, _RPATH, _RUNPATH = 0, 5, 10, 15, 29
_READ_WRITE = 6
_SEGMENT = "<IIQQQQQQ"
_LARGEST = 16 * 1024 * 1024  # bytes of a table that is copied


@dataclass(frozen=True, slots=True)
class Segment:
    """An entry of the program header table."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    size: int
    memory: int
    align: int

    def packed(self) -> bytes:
        """Return the entry's bytes."""
        values = (self.kind, self.flags, self.offset, self.address, self.physical)
        return struct.pack(_SEGMENT, *values, self.size, self.memory, self.align)


def graft(path: Path, interpreter: str, rpath: str) -> bool:
    """Set the loader and the DT_RPATH of the 64-bit program *path*; False when it has no room.

    Then nothing of it has changed. ValueError or struct.error when it is damaged.
    """
    with path.open("r+b") as file:
        file.seek(0)
        header = file.read(64)
        (table,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        if size != struct.calcsize(_SEGMENT):
            raise ValueError("its table of segments is of another size")
        rows = struct.iter_unpack(_SEGMENT, _read(file, table, size * count))
        segments = [Segment(*row) for row in rows]
        note = next((s for s in reversed(segments) if s.kind == _NOTE), None)
        if note is None:
            return False
        loads = [s for s in segments if s.kind == _LOAD]
        (dynamic,) = (s for s in segments if s.kind == _DYNAMIC)
        align = max(4096, *(s.align for s in loads))
        offset = -(-file.seek(0, 2) // align) * align
        address = -(-max(s.address + s.memory for s in loads) // align) * align
        loader = interpreter.encode() + b"\0"
        start = -(-len(loader) // 16) * 16
        entries, strings = _dynamic(file, dynamic, loads, rpath)
        place = address + start + 16 * len(entries)
        known = {_STRTAB: place, _STRSZ: len(strings)}
        section = b"".join(struct.pack("<qQ", tag, known.get(tag, v)) for tag, v in entries)
        content = loader.ljust(start, b"\0") + section + strings
        new = Segment(
            _LOAD, _READ_WRITE, offset, address, address, len(content), len(content), align
        )
        last = max(i for i, s in enumerate(segments) if s.kind == _LOAD)
        segments.insert(last + 1, new)  # they must be in the order of their addresses
        segments.remove(note)
        parts = {_INTERP: (0, len(loader)), _DYNAMIC: (start, len(section))}
        file.seek(offset)
        file.write(content)
        file.seek(table)
        file.write(b"".join(_moved(s, new, parts).packed() for s in segments))
        return True


def _moved(segment: Segment, into: Segment, parts: dict[int, tuple[int, int]]) -> Segment:
    """Return where *segment* is now, if it is one of the *parts* of the new one."""
    if segment.kind not in parts:
        return segment
    start, size = parts[segment.kind]
    where = into.address + start
    return replace(
        segment,
        offset=into.offset + start,
        address=where,
        physical=where,
        size=size,
        memory=size,
    )


def _dynamic(
    file: IO[bytes], dynamic: Segment, loads: list[Segment], rpath: str
) -> tuple[list[tuple[int, int]], bytes]:
    """Return the new dynamic section, in which the strings' place is open, and the strings."""
    old = list(struct.iter_unpack("<qQ", _read(file, dynamic.offset, dynamic.size)))
    end = next(i for i, (tag, _) in enumerate(old) if tag == _NULL)
    known = dict(old[:end])
    where = next(
        s.offset + known[_STRTAB] - s.address
        for s in loads
        if s.address <= known[_STRTAB] < s.address + s.size
    )
    strings = _read(file, where, known[_STRSZ])
    kept = [(tag, value) for tag, value in old[:end] if tag not in {_RPATH, _RUNPATH}]
    entries = [*kept, (_RPATH, len(strings)), (_NULL, 0)]
    return entries, strings + rpath.encode() + b"\0"


def _read(file: IO[bytes], offset: int, size: int) -> bytes:
    if size > _LARGEST:
        raise ValueError(f"a table of {size} bytes is none")
    file.seek(offset)
    data = file.read(size)
    if len(data) != size:
        raise ValueError("it ends early")
    return data
