"""Bring one file whose hash is known into a folder: resumed, retried, verified while it arrives."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote, urlsplit

import aiohttp
from yarl import URL

from agentix.errors import FetchError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from agentix.build.artifacts import Needed

_CHUNK = 256 * 1024
_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=60, sock_connect=20, sock_read=60)
_SLOWEST = 16 * 1024  # bytes a second; a server that is slower for the whole file is given up
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a download is tried again, and how long it waits in between (seconds)."""

    tries: int = 5
    first: float = 0.5
    longest: float = 20.0
    asked: float = 60.0  # the most that a server's Retry-After is followed

    def delay(self, attempt: int, wanted: float | None) -> float:
        """Return the wait after failure number *attempt*; *wanted* is what the server asked for."""
        if wanted is not None:
            return min(wanted, self.asked)
        return min(self.first * 2 ** (attempt - 1), self.longest) * random.uniform(0.8, 1.2)  # noqa: S311


def session(connections: int) -> aiohttp.ClientSession:
    """Return a session that honours the user's proxies and netrc."""
    return aiohttp.ClientSession(
        trust_env=True,
        timeout=_TIMEOUT,
        auto_decompress=False,
        connector=aiohttp.TCPConnector(limit=connections),
        headers={"Accept-Encoding": "identity", "User-Agent": "agentix"},
    )


class _Transient(Exception):  # noqa: N818 - not an error yet
    """The transfer broke, and another try may go better."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


async def download(
    client: aiohttp.ClientSession,
    address: str,
    wanted: Needed,
    destination: Path,
    *,
    auth: aiohttp.BasicAuth | None = None,
    advance: Callable[[int], None] = lambda amount: None,
    patience: Patience = Patience(),  # noqa: B008 - frozen
) -> None:
    """Write the file at *address* to *destination*, which appears only when its hash is right.

    What has arrived stays beside it as ``.partial`` when the transfer is interrupted, and the next
    call goes on from there. FetchError when the file cannot be had or is not what is *wanted*.
    """
    partial = destination.with_name(destination.name + ".partial")
    transfer = _Transfer(client, address, wanted, partial, auth, advance)
    try:
        async with asyncio.timeout(300 + wanted.size / _SLOWEST):
            await transfer.run(patience)
        partial.replace(destination)
    except TimeoutError:
        raise FetchError(
            f"cannot fetch {wanted.file}: {_shown(address)} is too slow; try again to go on from here"
        ) from None
    except OSError as error:
        raise FetchError(
            f"cannot fetch {wanted.file}: cannot write {partial}: {error.strerror or error}"
        ) from error


@dataclass(slots=True)
class _Transfer:
    client: aiohttp.ClientSession
    address: str
    wanted: Needed
    partial: Path
    auth: aiohttp.BasicAuth | None
    advance: Callable[[int], None]

    async def run(self, patience: Patience) -> None:
        """Try until the file is complete and right."""
        failures = 0
        while True:
            resumed = self._size() > 0
            before = self._size()
            try:
                found = await self._once()
            except _Transient as problem:
                if self._size() - before >= _CHUNK:
                    failures = 0  # it moves; what is left shrinks with each try
                failures += 1
                if failures >= patience.tries:
                    raise FetchError(
                        f"cannot fetch {self.wanted.file} from {_shown(self.address)}: {problem} "
                        f"({failures} tries); check the network and try again"
                    ) from problem
                await asyncio.sleep(patience.delay(failures, problem.after))
                continue
            if found == self.wanted.sha256:
                return
            self._discard()
            if not resumed:
                raise FetchError(
                    f"{self.wanted.file} from {_shown(self.address)} is not what was locked: "
                    f"expected sha256 {self.wanted.sha256}, got {found}; nothing was added. "
                    "Check the index, mirror or proxy, or lock again if the file was replaced"
                )

    async def _once(self) -> str:
        """Make one request; return the sha256 of all that has arrived so far."""
        digest = hashlib.sha256()
        have = await asyncio.to_thread(_hash_into, digest, self.partial)
        if have > self.wanted.size:
            self._discard()
            digest, have = hashlib.sha256(), 0
        self.advance(have)
        if 0 < have == self.wanted.size:
            return digest.hexdigest()
        counted = have
        try:
            with self.partial.open("ab") as file:
                async for chunk, start in self._chunks(have):
                    if start == 0 and have:  # the server does not resume: from the beginning
                        file.truncate(0)
                        self.advance(-have)
                        digest, counted, have = hashlib.sha256(), 0, 0
                    counted += len(chunk)
                    self.advance(len(chunk))
                    digest.update(chunk)
                    self._write(file, chunk)
                    if counted > self.wanted.size:
                        break  # longer than what was locked, so it is something else
        except (_Transient, FetchError):
            self.advance(-counted)
            raise
        if counted < self.wanted.size:
            ...
        return digest.hexdigest()
