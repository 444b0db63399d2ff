"""A tar of unknown quality as a stream of blocks, members and contents; memory stays bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.bundle import archive
from agentix.bundle.archive import BLOCK, Member
from agentix.errors import BundleError
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Blocks:
    """The tar of a bundle as it streams by; each chunk is given to *arrived* once, in order."""

    def __init__(self, chunks: Iterator[bytes], arrived: Callable[[bytes], object]) -> None:
        self.size = 0
        self.header = b""
        """What precedes the content of the last member, as it came."""
        self._chunks = chunks
        self._arrived = arrived
        self._chunk = memoryview(b"")
        self._at = 0

    def more(self) -> bool:
        """Make the next bytes available; False at the end."""
        if self._at < len(self._chunk):
            return True
        data = next(self._chunks, b"")
        self._arrived(data)
        self.size += len(data)
        self._chunk, self._at = memoryview(data), 0
        return bool(data)

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Yield the next *size* bytes, in as few pieces as they come."""
        while size:
            if not self.more():
                raise BundleError("it is truncated")
            piece = self._chunk[self._at : self._at + size]
            self._at += len(piece)
            size -= len(piece)
            yield piece

    def take(self, size: int) -> bytes:
        """Return the next *size* bytes, of which there are few."""
        end = self._at + size
        if end <= len(self._chunk):
            piece = self._chunk[self._at : end]
            self._at = end
            return bytes(piece)
        return b"".join(self.pieces(size))

    def member(self) -> Member | None:
        """Return the next member; None for the first block of the end."""
        block = self.take(BLOCK)
        size = archive.extended_size(block)
        extended = b""
        if size is not None:
            extended = block + self.take(size + archive.padding(size))
            block = self.take(BLOCK)
        elif not any(block):
            return None
        self.header = extended + block
        return archive.parse(extended, block)

    def skip_padding(self, member: Member) -> bytes:
        """Pass over the zeros that fill the last block of *member*, and return them."""
        zeros = self.take(archive.padding(member.size))
        if any(zeros):
            raise BundleError(f"member {plain(member.path)!r} is damaged: its padding is not empty")
        return zeros

    def end(self) -> None:
        """Expect the rest of the end of the tar, and nothing behind it."""
        if any(self.take(len(archive.END) - BLOCK)):
            raise BundleError("it has no proper end")
        if self.more():
            raise BundleError("it has more data after its end")
