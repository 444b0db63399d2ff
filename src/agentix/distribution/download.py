"""Blobs on their way from a registry: ahead of who reads them, in bounded memory, each verified."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from typing import TYPE_CHECKING

from agentix.distribution.connection import Passing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import aiohttp

    from agentix.distribution.artifact import Descriptor
    from agentix.distribution.background import Background
    from agentix.distribution.registry import Registry

_AHEAD = 4  # blobs under way at once: most are small, and waited for rather than read
_CHUNKS = 8  # of each, in memory
_CHUNK = 256 * 1024
_SLOWEST = 16 * 1024  # bytes a second, below which a registry does not really send
_GRACE = 60.0  # seconds, before that counts

_Queue = asyncio.Queue["bytes | BaseException | None"]


class Downloads:
    """The *blobs* of a *registry*, to be read one after the other, as many times as there are."""

    def __init__(
        self,
        registry: Registry,
        background: Background,
        blobs: Sequence[Descriptor],
        advance: Callable[[int], object],
    ) -> None:
        self._registry = registry
        self._background = background
        self._waiting = deque(blobs)
        self._started: deque[tuple[Descriptor, _Queue, asyncio.Task[None]]] = deque()
        self._advance = advance

    def next(self) -> Iterator[bytes]:
        """Yield the next blob, in chunks.

        Raises DistributionError when it cannot be had, or is another one than was promised.
        """
        queue = self._background.wait(self._start())
        while (chunk := self._background.wait(queue.get())) is not None:
            if isinstance(chunk, BaseException):
                raise chunk
            self._advance(len(chunk))
            yield chunk

    async def _start(self) -> _Queue:
        """Begin with the next blobs; return where the first of them comes."""
        while self._waiting and len(self._started) < _AHEAD:
            blob, queue = self._waiting.popleft(), _Queue(_CHUNKS)
            task = asyncio.create_task(self._fetch(blob, queue))
            self._started.append((blob, queue, task))
        return self._started.popleft()[1]

    async def _fetch(self, blob: Descriptor, queue: _Queue) -> None:
        transfer = _Transfer(self._registry, blob, queue)
        try:
            while not transfer.done:
                await self._registry.patiently(transfer.advance)
            transfer.check()
            await queue.put(None)
        except Exception as error:
            await queue.put(error)


class _Transfer:
    """One blob, hashed as it comes, and gone on with where a connection broke."""

    def __init__(self, registry: Registry, blob: Descriptor, queue: _Queue) -> None:
        self._registry = registry
        self._blob = blob
        self._queue = queue
        self._digest = hashlib.sha256()
        self._have = 0
        self._waited = 0.0  # seconds, in which the registry could have sent

    @property
    def done(self) -> bool:
        return self._have == self._blob.size

    async def advance(self) -> None:
        """Fetch the rest; what moved before it broke does not count as a failure."""
        before = self._have
        try:
            async with self._registry.reading(self._blob.digest, self._have) as (start, content):
                skip = self._have - start
                while chunk := await self._read(content):
                    fresh, skip = chunk[skip:], max(0, skip - len(chunk))
                    if fresh:
                        await self._take(fresh)
            if not self.done:
                raise Passing("the connection ended early")
        except Passing:
            if self._have - before < _CHUNK:
                raise

    def check(self) -> None:
        """Raise DistributionError unless all of it is what was promised."""
        if f"sha256:{self._digest.hexdigest()}" != self._blob.digest:
            raise self._registry.failed(f"it sent something else than {self._blob.digest}")

    async def _read(self, content: aiohttp.StreamReader) -> bytes:
        start = time.monotonic()
        chunk = await content.read(_CHUNK)
        self._waited += time.monotonic() - start
        if self._have < (self._waited - _GRACE) * _SLOWEST:
            raise self._registry.failed("it sends too slowly")
        return chunk

    async def _take(self, data: bytes) -> None:
        self._have += len(data)
        if self._have > self._blob.size:
            raise self._registry.failed(
                f"it sent more than the {self._blob.size} bytes it promised"
            )
        self._digest.update(data)
        await self._queue.put(data)
