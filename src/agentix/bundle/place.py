"""Where two files begin to differ, in the words of whoever will look there.

Files are read in pieces, side by side, and no further than the first difference.
"""

from __future__ import annotations

import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import IO

from agentix.bundle.tree import CHUNK
from agentix.text import plain

Reader = Callable[[], Iterator[bytes]]

_SHOWN = 60  # characters of a line
_KEPT = 200  # bytes around the first difference
_ZIP = b"PK\x03\x04"
_LARGEST_ZIP = 1024**3
_LARGEST_DIRECTORY = 16 * 1024**2  # in a zip; in memory it is ten times as large
_ZIP_END = 22  # bytes, without the comment
_ZIP_TAIL = _ZIP_END + 20 + (1 << 16)
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # others may want gigabytes
_UNUSABLE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)


def where(old: Reader, new: Reader) -> str | None:
    """Return where the two begin to differ; None when they do not.

    In an archive that is the member, in a text the line, else the byte.
    """
    spot = _first(old(), new())
    if spot is None:
        return None
    inside = None
    if spot.archive:
        # Where that does not fit, less is said.
        with suppress(OSError), tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
            if _keep(old, one) and _keep(new, other):
                inside = _member(one, other)
    return inside or spot.text()


def aligned(old: Iterator[bytes], new: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield both contents in pieces of equal length; what only one has, beside nothing."""
    one, other = memoryview(b""), memoryview(b"")
    while True:
        one = one or memoryview(next(filter(None, old), b""))
        other = other or memoryview(next(filter(None, new), b""))
        size = min(len(one), len(other)) or max(len(one), len(other))
        if not size:
            return
        yield bytes(one[:size]), bytes(other[:size])
        one, other = one[size:], other[size:]


@dataclass(frozen=True, slots=True)
class _Spot:
    """The first difference: its place, and what is around it on either side."""

    offset: int
    line: int
    before: bytes  # the beginning of the line, or the end of that
    old: bytes
    new: bytes
    archive: bool

    def text(self) -> str:
        if b"\0" in self.before + self.old + self.new:
            return f"byte {self.offset + 1}"
        return f"line {self.line}: {self._shown(self.old)} → {self._shown(self.new)}"

    def _shown(self, after: bytes) -> str:
        line = (self.before + after).partition(b"\n")[0].decode("utf-8", "replace")
        skip = max(0, len(self.before.decode("utf-8", "replace")) - _SHOWN // 2)
        if not line and not after:
            return "nothing"
        return repr(plain(("…" if skip else "") + line[skip:], _SHOWN))


def _first(old: Iterator[bytes], new: Iterator[bytes]) -> _Spot | None:
    offset, line, before, archive = 0, 1, b"", None
    pieces = aligned(old, new)
    for one, other in pieces:
        if archive is None:
            archive = one.startswith(_ZIP) and other.startswith(_ZIP)
        if one != other:
            at = _common(one, other)
            same = one[:at]
            line += same.count(b"\n")
            before = (before + same).rpartition(b"\n")[2][-_KEPT:]
            rest = [one[at:], other[at:]]
            while max(map(len, rest)) < _KEPT and any(more := next(pieces, ())):
                rest = [piece + more[side] for side, piece in enumerate(rest)]
            return _Spot(offset + at, line, before, rest[0][:_KEPT], rest[1][:_KEPT], archive)
        offset += len(one)
        line += one.count(b"\n")
        before = (before + one[-_KEPT:]).rpartition(b"\n")[2][-_KEPT:]
    return None


def _common(one: bytes, other: bytes) -> int:
    """Return how many bytes the two begin with in common."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _keep(read: Reader, file: IO[bytes]) -> bool:
    """Copy into *file*, for reading at any place; False when there is too much of it."""
    size = 0
    for piece in read():
        size += len(piece)
        if size > _LARGEST_ZIP:
            return False
        file.write(piece)
    return _directory_size(file) <= _LARGEST_DIRECTORY


def _directory_size(file: IO[bytes]) -> int:
    """Return how many bytes zipfile would read at once; of what is no zip, or of no old one, more.

    It looks for the end of the directory right where the file ends, then for one with a comment.
    """
    size = file.seek(0, 2)
    file.seek(max(0, size - _ZIP_TAIL))
    tail = file.read()
    at = len(tail) - _ZIP_END
    if not tail.startswith(b"PK\5\6", max(0, at)) or tail[-2:] != b"\0\0":
        at = tail.rfind(b"PK\5\6")
    if not 0 <= at <= len(tail) - _ZIP_END or tail.startswith(b"PK\6\7", at - 20):
        return _LARGEST_ZIP
    return int(struct.unpack_from("<I", tail, at + 12)[0])


def _member(old: IO[bytes], new: IO[bytes]) -> str | None:
    """Return in which member two zip archives differ; None when they cannot be read."""
    try:
        with zipfile.ZipFile(old) as one, zipfile.ZipFile(new) as other:
            names = (one.namelist(), other.namelist())
            for name in names[0]:
                if name not in other.NameToInfo:
                    return f"member {plain(name)} only in the first"
            for name in names[1]:
                if name not in one.NameToInfo:
                    return f"member {plain(name)} only in the second"
            for name in names[0]:
                if not {each.getinfo(name).compress_type for each in (one, other)} <= _METHODS:
                    return None
                if one.getinfo(name).CRC != other.getinfo(name).CRC:
                    read = (partial(_read, one, name), partial(_read, other, name))
                    spot = _first(read[0](), read[1]())
                    if spot is not None:
                        return f"member {plain(name)}, {spot.text()}"
            for name in names[0]:
                times = (one.getinfo(name).date_time, other.getinfo(name).date_time)
                if times[0] != times[1]:
                    return f"member {plain(name)}, its time: {_time(times[0])} → {_time(times[1])}"
            if names[0] != names[1]:
                return "the order of its members"
    except _UNUSABLE:
        pass
    return None


def _read(archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    with archive.open(name) as file:
        while piece := file.read(CHUNK):
            yield piece


def _time(value: tuple[int, int, int, int, int, int]) -> str:
    return "{:04}-{:02}-{:02} {:02}:{:02}:{:02}".format(*value)
