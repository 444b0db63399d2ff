"""Read a few small files of a wheel where it lies, without fetching all of it.

The end of a zip file says where everything in it is, and servers give parts of a file. One that
does not gives all of it, of which nothing is kept but what was asked for.
"""

from __future__ import annotations

import asyncio
import lzma
import os
import re
import struct
import tempfile
import zipfile
import zlib
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import aiohttp

from agentix.errors import LockError
from agentix.patience import TRANSIENT, Patience, retry_after

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_TAIL = 32 * 1024  # bytes; holds the list of files of most wheels, and what they say of themselves
_END = b"PK\x05\x06"
_END_SIZE = 22
_END_LONGEST = _END_SIZE + 65535  # with the longest comment
_MOST = 4 * 1024**3  # bytes of a file whose server knows no parts
_LONGEST = 1800.0  # seconds that a request may take
_HEADER = 16 * 1024  # bytes before a member's content; more than any archiver writes there
_LARGEST = 1024 * 1024  # bytes of one of the files
_LARGEST_LIST = 32 * 1024 * 1024  # bytes; some hundred thousand files, which take much more memory
_CHUNK = 256 * 1024
_UNUSABLE = (
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    RuntimeError,
    ValueError,
)


class _OtherPart(zipfile.BadZipFile):
    """A server has not given the part that it was asked for."""


class _Transient(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


@asynccontextmanager
async def open_zip(
    session: aiohttp.ClientSession, address: str, file: str, patience: Patience | None = None
) -> AsyncIterator[RemoteZip]:
    """Open the zip *file* at *address*, which may be that of a local file.

    Raises LockError, here and in the context, when it cannot be had or read.
    """
    parts = urlsplit(address)
    local = Path(unquote(parts.path)) if parts.scheme == "file" else None
    try:
        with tempfile.TemporaryFile() if local is None else local.open("rb") as copy:
            remote = RemoteZip(session, address, file, copy, patience or Patience())
            if local is None:
                await remote.fetch_list()
            remote.open()
            yield remote
    except (OSError, *_UNUSABLE) as error:
        reason = " ".join(str(error).split())
        raise LockError(f"cannot read {file}: {reason}; choose another version of it") from error


class RemoteZip:
    """A sparse copy of a remote file: what has been asked for is in its place."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        address: str,
        file: str,
        copy: IO[bytes],
        patience: Patience,
    ) -> None:
        self._session, self._address, self._file = session, address, file
        self._copy, self._patience = copy, patience
        self._start = self._list = 0  # all is there from *start* on, which is before the list

    async def fetch_list(self) -> None:
        """Bring the list of files."""
        try:
            start = await self._fetch(f"bytes=-{_TAIL}")
        except _OtherPart:  # a server that knows parts, but not from the end
            start = await self._fetch(None)
        last = self._copy.seek(max(start, self._copy.seek(0, os.SEEK_END) - _END_LONGEST))
        tail = self._copy.read()
        end = tail.rfind(_END)
        if end < 0 or len(tail) < end + _END_SIZE:
            raise zipfile.BadZipFile("it is no zip file")
        length, self._list = struct.unpack_from("<II", tail, end + 12)
        if self._list + length > last + end:
            raise zipfile.BadZipFile("its list of files lies beyond its end")
        if length > _LARGEST_LIST:
            raise zipfile.BadZipFile(f"its list of files has more than {_LARGEST_LIST} bytes")
        if self._list < start:
            start = await self._fetch(f"bytes={self._list}-{start - 1}")
        self._start = start

    def open(self) -> None:
        """Read the list of files."""
        self._archive = zipfile.ZipFile(self._copy)
        self.names = self._archive.namelist()

    async def read(self, name: str) -> bytes:
        """Return the content of the member *name*."""
        member = self._archive.getinfo(name)
        first = member.header_offset
        last = min(first + member.compress_size + _HEADER, self._list)
        if first < min(self._start, last):
            await self._fetch(f"bytes={first}-{last - 1}")
        with self._archive.open(member) as content:
            data = content.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise zipfile.BadZipFile(f"its {name} is larger than {_LARGEST} bytes")
        return data

    async def _fetch(self, part: str | None) -> int:
        """Put a part of the file, or all of it, into its place; return where that begins."""
        headers = {"Range": part} if part else {}
        for failures in range(1, self._patience.tries + 1):
            try:
                async with (
                    asyncio.timeout(_LONGEST),
                    self._session.get(self._address, headers=headers) as response,
                ):
                    return await self._place(response, part)
            except (_Transient, aiohttp.ClientError, ConnectionError, TimeoutError) as error:
                if failures == self._patience.tries:
                    raise LockError(self._failed(str(error) or "no answer")) from error
                await asyncio.sleep(self._patience.delay(failures, getattr(error, "after", None)))
        raise AssertionError("a patience tries at least once")

    async def _place(self, response: aiohttp.ClientResponse, part: str | None) -> int:
        status = f"the server answered {response.status} {response.reason}"
        if response.status in TRANSIENT:
            raise _Transient(status, retry_after(response.headers.get("Retry-After")))
        if part and response.status in {400, 416, 501}:
            raise _OtherPart(status)
        if response.status not in {200, 206}:
            raise LockError(self._failed(status))
        start = 0
        if response.status == 206:
            told = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            asked = re.match(r"bytes=(\d+)-", part or "")
            if told is None or (asked is not None and asked[1] != told[1]):
                raise _OtherPart("the server gives another part than it was asked for")
            start = int(told[1])
            if start > _MOST:
                raise zipfile.BadZipFile(f"it is larger than {_MOST} bytes")
        left = _MOST
        self._copy.seek(start)
        async for chunk in response.content.iter_chunked(_CHUNK):
            if (left := left - len(chunk)) < 0:
                raise zipfile.BadZipFile(f"it is larger than {_MOST} bytes")
            self._copy.write(chunk)
        self._copy.flush()
        return start

    def _failed(self, reason: str) -> str:
        return f"cannot look into {self._file} for what it needs: {reason}; lock again later"
