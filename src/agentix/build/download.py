"""Bring one file whose hash is known into a folder: resumed, retried, verified while it arrives."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import aiohttp
from yarl import URL

from agentix.errors import FetchError
from agentix.folders import what_to_do
from agentix.patience import TRANSIENT, Patience, retry_after
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from agentix.build.artifact import Artifact

_CHUNK = 256 * 1024
_SLOWEST = 16 * 1024  # bytes a second; what is slower over the whole file is given up
_LARGEST = 4 * 1024**3  # bytes of a file whose size nobody told
_LONGEST = 3600.0  # seconds that such a file may take


_PATIENCE = Patience()


def shown(address: str) -> str:
    """Return *address* as a message may show it: without credentials and signed queries."""
    try:
        return str(URL(address).with_user(None).with_query(None).with_fragment(None))
    except ValueError:  # it is none
        return plain(address.rpartition("@")[2].partition("?")[0])


class Gone(FetchError):  # noqa: N818 - what a caller handles is the state of the file
    """The server does not have the file."""


async def download(
    session: aiohttp.ClientSession,
    address: str,
    wanted: Artifact,
    destination: Path,
    *,
    advance: Callable[[int], None] = lambda _: None,
    patience: Patience = _PATIENCE,
) -> None:
    """Write the file at *address* to *destination*, which appears only when its hash is right.

    What arrives is kept beside it as ``.partial``; after an interruption the next call goes on
    from there. Raises Gone when the server lacks the file, FetchError when it cannot be had or
    is not what is *wanted*.
    """
    partial = destination.with_name(destination.name + ".partial")
    transfer = _Transfer(session, address, wanted, partial, advance)
    try:
        async with asyncio.timeout(300 + wanted.size / _SLOWEST if wanted.size else _LONGEST):
            await transfer.run(patience)
        partial.replace(destination)
    except TimeoutError:
        raise FetchError(
            f"cannot fetch {wanted.file}: {shown(address)} is too slow; "
            "run the command again to go on from what has arrived"
        ) from None
    except OSError as error:
        raise FetchError(
            f"cannot fetch {wanted.file}: cannot write {partial}: {error.strerror or error}; "
            f"{what_to_do(error)}"
        ) from error


class _Broken(Exception):  # noqa: N818 - never leaves this module
    """The transfer broke, and another try may go better."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


@dataclass(slots=True)
class _Transfer:
    session: aiohttp.ClientSession
    address: str
    wanted: Artifact
    partial: Path
    advance: Callable[[int], None]
    reported: int = 0

    async def run(self, patience: Patience) -> None:
        """Try until the file is complete and right."""
        failures = 0
        while True:
            start = self._size()
            try:
                got = await self._once()
            except _Broken as problem:
                moved = self._size() - start
                failures = 1 if moved >= _CHUNK else failures + 1  # what moves will end
                if failures >= patience.tries:
                    raise FetchError(
                        f"cannot fetch {self.wanted.file} from {shown(self.address)}: {problem} "
                        f"(tried {failures} times); check the network and run the command again"
                    ) from problem
                await asyncio.sleep(patience.delay(failures, problem.after))
                continue
            if got == self.wanted.sha256:
                return
            self.partial.unlink(missing_ok=True)
            if start == 0:
                raise _not_what_was_locked(self.wanted, shown(self.address), got)

    async def _once(self) -> str:
        """Make one request and return the sha256 of everything, or say why it is another file."""
        digest, have = await asyncio.to_thread(_hash_file, self.partial)
        self._report(have)
        size = self.wanted.size
        if digest.hexdigest() == self.wanted.sha256 or (size is not None and have >= size):
            return digest.hexdigest()
        async with self._response(have) as response:
            with self.partial.open("ab") as file:
                if response.status != 206 and have:  # this server starts from the beginning
                    file.truncate(0)
                    digest, have = hashlib.sha256(), 0
                async for chunk in response.content.iter_chunked(_CHUNK):
                    have += len(chunk)
                    if have > (most := size or _LARGEST):
                        return f"a file of more than {most} bytes"
                    file.write(chunk)
                    digest.update(chunk)
                    self._report(have)
            if size is not None and have < size and response.content_length is None:
                raise _Broken("the connection ended early")
        return digest.hexdigest()

    @asynccontextmanager
    async def _response(self, have: int) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask for what is missing after *have* bytes."""
        headers = {"Range": f"bytes={have}-"} if have else {}
        try:
            async with self.session.get(self.address, headers=headers) as response:
                self._check(response, have)
                yield response
        except aiohttp.InvalidURL as error:
            raise FetchError(
                f"cannot fetch {self.wanted.file}: its address in the index is not valid"
            ) from error
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
            raise FetchError(
                f"cannot fetch {self.wanted.file} from {shown(self.address)}: {error}; "
                "SSL_CERT_FILE names the certificates to trust"
            ) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise _Broken(str(error) or type(error).__name__) from error

    def _check(self, response: aiohttp.ClientResponse, have: int) -> None:
        match response.status:
            case 200:
                return
            case 206 if response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                return
            case 206 | 416:  # it does not agree with what we have
                self.partial.unlink(missing_ok=True)
                raise _Broken("the server could not resume")
            case status if status in TRANSIENT:
                after = retry_after(response.headers.get("Retry-After"))
                raise _Broken(f"the server answered {status} {response.reason}", after)
            case 404 | 410:
                raise Gone(f"{shown(self.address)} does not have {self.wanted.file}")
            case 401 | 403 | 407:
                raise self._refused(response, "; put credentials into netrc or uv's index settings")
            case _:
                raise self._refused(response)

    def _refused(self, response: aiohttp.ClientResponse, advice: str = "") -> FetchError:
        return FetchError(
            f"cannot fetch {self.wanted.file} from {shown(self.address)}: "
            f"the server answered {response.status} {response.reason}{advice}"
        )

    def _report(self, have: int) -> None:
        self.advance(have - self.reported)
        self.reported = have

    def _size(self) -> int:
        try:
            return self.partial.stat().st_size
        except FileNotFoundError:
            return 0


def _hash_file(file: Path) -> tuple[hashlib._Hash, int]:
    digest = hashlib.sha256()
    size = 0
    try:
        with file.open("rb") as stream:
            while chunk := stream.read(4 * _CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except FileNotFoundError:
        pass
    return digest, size


def copy(address: str, wanted: Artifact, destination: Path) -> None:
    """Copy the file at the ``file:`` *address* to *destination*, if it is what is *wanted*."""
    source = Path(unquote(urlsplit(address).path))
    partial = destination.with_name(destination.name + ".partial")
    try:
        shutil.copyfile(source, partial)
    except OSError as error:
        raise FetchError(f"cannot copy {source}: {error.strerror or error}") from error
    got = _hash_file(partial)[0].hexdigest()
    if got != wanted.sha256:
        partial.unlink()
        raise _not_what_was_locked(wanted, str(source), got)
    partial.replace(destination)


def _not_what_was_locked(wanted: Artifact, place: str, got: str) -> FetchError:
    return FetchError(
        f"{wanted.file} from {place} is not what was locked: expected sha256 {wanted.sha256}, "
        f"got {got}; nothing was added. Check the index, mirror or proxy that serves it"
    )
