"""Reading an HTTP body of either direction: a message, then as much payload as it announces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from agentix.wire.errors import MalformedError
from agentix.wire.frames import PREFIX, body_head_size

if TYPE_CHECKING:
    from agentix.wire.frames import Buffer


class Content(Protocol):
    """The part of aiohttp's stream that is needed."""

    async def readany(self) -> bytes:
        """Wait for bytes and give all that there are; none mean the end."""


class Body:
    """A body, read piece by piece: it takes no more memory than it has already brought along."""

    __slots__ = ("_content", "_rest")

    def __init__(self, content: Content) -> None:
        self._content = content
        self._rest = memoryview(b"")

    async def head(self) -> Buffer:
        """Read the message."""
        return await self.exactly(body_head_size(await self.exactly(PREFIX.size)))

    async def some(self, most: int) -> memoryview:
        """Read between one and *most* bytes."""
        if not self._rest:
            self._rest = memoryview(await self._content.readany())
            if not self._rest:
                raise MalformedError("the body ends before its message says")
        piece, self._rest = self._rest[:most], self._rest[most:]
        return piece

    async def exactly(self, size: int) -> Buffer:
        """Read this many bytes into one piece; what has come as one is not copied."""
        if size <= len(self._rest):
            piece, self._rest = self._rest[:size], self._rest[size:]
            return piece
        whole = bytearray()
        while len(whole) < size:
            whole += await self.some(size - len(whole))
        return whole

    async def end(self) -> None:
        """Make sure that nothing follows."""
        if self._rest or await self._content.readany():
            raise MalformedError("the body is longer than its message says")
