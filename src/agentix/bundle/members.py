"""What a store path looks like in a tar, noted when it came in: each member's length and checksum.

By it a tar that has the same store path again is compared without being unpacked, and a damaged
file is called by its name. It proves nothing: what a store path holds is proven by its NAR hash.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import TYPE_CHECKING

from pydantic import ValidationError

from agentix.bundle.manifest import StoreName, StoreObject
from agentix.validation import Strict

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from agentix.bundle.lane import Lane

_LARGE = 64 * 1024  # from here on, a checksum is worth a thread's while
_MOST_BYTES = 1 << 26
_ROOM = 1 << 25  # bytes; what one store path's note may take while it is made


class Members(Strict):
    """The members of the store path *name*, whose content is *content*, in order.

    ``paths`` are below the store path (that itself is empty), a letter a byte; ``lengths`` count
    header, content and padding (bytes), and ``checksums`` are CRC-32 of those.
    """

    name: StoreName
    content: StoreObject
    paths: tuple[str, ...]
    lengths: tuple[int, ...]
    checksums: tuple[int, ...]

    @classmethod
    def load(cls, file: Path) -> Self | None:
        """Return what *file* says; None when that makes no sense."""
        try:
            with file.open("rb") as opened:
                found = cls.model_validate_json(opened.read(_MOST_BYTES))
        except (OSError, ValidationError):
            return None
        same = len(found.paths) == len(found.lengths) == len(found.checksums) > 0
        return found if same else None

    def by_path(self) -> dict[str, int]:
        """Return the checksums by path."""
        return dict(zip(self.paths, self.checksums, strict=True))


class MembersNote:
    """Notes the members of a store path while they pass; what is large, on *lane*."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._paths: list[str] = []
        self._lengths: list[int] = []
        self._checksums: list[int] = []
        self._large = False
        self._room = _ROOM

    def begin(self, parts: list[bytes], header: bytes, size: int) -> None:
        """Note the next member, with *size* bytes of content: *parts* is its path."""
        path = b"/".join(parts).decode("latin-1")
        self._room -= len(path) + 200
        if self._room < 0:
            return
        self._paths.append(path)
        self._lengths.append(len(header))
        self._checksums.append(zlib.crc32(header))
        self._large = size >= _LARGE

    def content(self, data: bytes | memoryview) -> None:
        """Note the next bytes of the member, which do not change any more."""
        if self._room < 0:
            return
        self._lengths[-1] += len(data)
        if self._large:
            self._lane.do(partial(self._add, len(self._checksums) - 1, data))
        else:
            self._checksums[-1] = zlib.crc32(data, self._checksums[-1])

    def finish(self, name: str, content: StoreObject) -> Members | None:
        """Return what was noted of the store path *name*; None if there are too many members.

        To be called on the lane.
        """
        return (
            None
            if self._room < 0
            else Members(
                name=name,
                content=content,
                paths=tuple(self._paths),
                lengths=tuple(self._lengths),
                checksums=tuple(self._checksums),
            )
        )

    def _add(self, index: int, data: bytes | memoryview) -> None:
        self._checksums[index] = zlib.crc32(data, self._checksums[index])
