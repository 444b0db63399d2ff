"""Ask the npm registry about releases, and bring their tarballs: with the user's own settings."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
from pydantic import ValidationError

from agentix.build.download import shown
from agentix.build.npm.integrity import Digests, Integrity
from agentix.build.npm.package import Package
from agentix.build.npm.settings import read_settings
from agentix.build.session import open_session
from agentix.errors import LockError
from agentix.patience import TRANSIENT, Patience, retry_after
from agentix.validation import first_fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from agentix.build.npm.package import Wanted
    from agentix.build.npm.settings import Settings

_AT_ONCE = 8
_LARGEST_ANSWER = 64 * 1024**2  # bytes about one package: every release of it is in there
_LARGEST = 4 * 1024**3  # bytes of a tarball
_LONGEST = 3600.0  # seconds that it may take
_CHUNK = 256 * 1024
_ABBREVIATED = "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8"

_T = TypeVar("_T")


class NotThere(LockError):  # noqa: N818 - what a caller handles is the state of the registry
    """The registry does not have the package, or not this release of it."""


class _Transient(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


@dataclass(frozen=True, slots=True)
class Release:
    """What the registry says of one release, and where its tarball is."""

    package: Package
    address: str
    integrity: Integrity


@dataclass(frozen=True, slots=True)
class Registry:
    """The registry, with a session that carries the user's credentials where they belong."""

    settings: Settings
    session: aiohttp.ClientSession
    patience: Patience = field(default_factory=Patience)
    # As text: a package's releases take many times as much when they are parsed.
    _known: dict[str, asyncio.Task[bytes]] = field(default_factory=dict)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    async def release(self, wanted: Wanted) -> Release:
        """Return what there is to know of *wanted*; NotThere when there is no such release."""
        if wanted.name not in self._known:
            self._known[wanted.name] = asyncio.create_task(self._document(wanted.name))
        document = self._parsed(wanted.name, await asyncio.shield(self._known[wanted.name]))
        versions = document.get("versions")
        found = versions.get(wanted.version) if isinstance(versions, dict) else None
        if not isinstance(found, dict):
            latest = _latest(document)
            raise NotThere(
                f"the npm registry has no {wanted}"
                + (f"; the latest is {latest}" if latest else "")
            )
        dist = found.get("dist")
        dist = dist if isinstance(dist, dict) else {}
        try:
            package = Package.model_validate(found | {"name": wanted.name})
        except ValidationError as error:
            raise LockError(
                f"the npm registry describes {wanted} oddly: {first_fault(error)}"
            ) from error
        promised = dist.get("integrity") or _sri(dist.get("shasum"))
        return Release(
            package,
            self._address(wanted, str(dist.get("tarball") or "")),
            Integrity.parse(str(promised or ""), of=str(wanted)),
        )

    async def download(
        self, release: Release, destination: Path, advance: Callable[[int], None] = lambda _: None
    ) -> tuple[str, int]:
        """Write the tarball of *release* to *destination*; return its sha256 and its size.

        LockError when it cannot be had, or is not what the registry promised.
        """

        async def attempt(response: aiohttp.ClientResponse) -> Digests:
            digests = Digests(release.integrity)
            with destination.open("wb") as file:
                async for chunk in response.content.iter_chunked(_CHUNK):
                    digests.update(chunk)
                    if digests.size > _LARGEST:
                        raise LockError(f"{release.package} is larger than {_LARGEST} bytes")
                    file.write(chunk)
                    advance(len(chunk))
            return digests

        what = f"the tarball of {release.package}"
        try:
            async with asyncio.timeout(_LONGEST):
                digests = await self._get(release.address, what, attempt)
        except TimeoutError:
            raise LockError(f"cannot fetch {what}: it takes more than an hour") from None
        if not digests.right:
            await asyncio.to_thread(destination.unlink, missing_ok=True)
            raise LockError(
                f"{what} from {shown(release.address)} is not what the registry promised "
                f"({release.integrity.algorithm} {release.integrity.digest.hex()[:16]}…); "
                "check the registry, mirror or proxy that serves it"
            )
        return digests.sha256, digests.size

    async def _document(self, name: str) -> bytes:
        async def read(response: aiohttp.ClientResponse) -> bytes:
            return b"".join([chunk async for chunk in _bounded(response, name)])

        return await self._get(self._about(name), name, read, Accept=_ABBREVIATED)

    def _parsed(self, name: str, document: bytes) -> dict[str, Any]:
        try:
            value = json.loads(document)
        except (ValueError, RecursionError):
            raise LockError(
                f"{shown(self._about(name))} does not answer as an npm registry does"
            ) from None
        return value if isinstance(value, dict) else {}

    def _about(self, name: str) -> str:
        return f"{self.settings.registry(name)}/{quote(name, safe='@')}"

    def _address(self, wanted: Wanted, told: str) -> str:
        """Return where the tarball is, which a mirror may tell as its upstream does."""
        registry = self.settings.registry(wanted.name)
        usual = f"/{wanted.name}/-/{wanted.name.rpartition('/')[2]}-{wanted.version}.tgz"
        parts = urlsplit(told)
        foreign = parts.netloc != urlsplit(registry).netloc
        if parts.scheme not in {"http", "https"} or (foreign and parts.path == usual):
            return registry + usual
        return told

    async def _get(
        self,
        address: str,
        what: str,
        read: Callable[[aiohttp.ClientResponse], Awaitable[_T]],
        **headers: str,
    ) -> _T:
        """Return what *read* makes of the answer, asking again while that may help."""
        for failures in range(1, self.patience.tries + 1):
            try:
                async with self._turns, self._answer(address, what, headers) as response:
                    return await read(response)
            except (_Transient, aiohttp.ClientError, ConnectionError, TimeoutError) as error:
                if failures == self.patience.tries:
                    raise LockError(
                        f"cannot fetch {what} from {shown(address)}: {str(error) or 'no answer'} "
                        f"(tried {failures} times); check the network and npm's settings"
                    ) from error
                await asyncio.sleep(self.patience.delay(failures, getattr(error, "after", None)))
        raise AssertionError("a patience tries at least once")

    @asynccontextmanager
    async def _answer(
        self, address: str, what: str, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self.session.get(address, headers=headers) as response:
                status = response.status
                if status in TRANSIENT:
                    after = retry_after(response.headers.get("Retry-After"))
                    raise _Transient(f"the registry answered {status} {response.reason}", after)
                if status in {404, 410}:
                    raise NotThere(f"the npm registry {shown(address)} does not have {what}")
                if status != 200:
                    advice = (
                        "; npm's settings need credentials for it" if status in {401, 403} else ""
                    )
                    raise LockError(
                        f"cannot fetch {what} from {shown(address)}: "
                        f"the registry answered {status} {response.reason}{advice}"
                    )
                yield response
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
            raise LockError(
                f"cannot fetch {what} from {shown(address)}: {error}; "
                "npm's setting cafile, or SSL_CERT_FILE, names the certificates to trust"
            ) from error
        except aiohttp.InvalidURL as error:
            raise LockError(f"the npm registry's address {address!r} is not valid") from error


@asynccontextmanager
async def open_registry(root: Path, patience: Patience | None = None) -> AsyncIterator[Registry]:
    """Open the registry that npm's settings in the folder *root* name."""
    settings = await read_settings(root)

    async def authorize(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        # For each request anew: one that was redirected to another server goes without.
        known = settings.authorization(str(request.url), settings.values["registry"])
        if known is not None:
            request.headers["Authorization"] = known
        return await handler(request)

    async with open_session(
        _AT_ONCE,
        middlewares=(authorize,),
        authorities=settings.authorities,
        proxy=settings.proxy(settings.values["registry"]),
    ) as session:
        registry = Registry(settings, session, patience or Patience())
        try:
            yield registry
        finally:
            for task in registry._known.values():
                task.cancel()
            await asyncio.gather(*registry._known.values(), return_exceptions=True)


async def _bounded(response: aiohttp.ClientResponse, name: str) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in response.content.iter_chunked(_CHUNK):
        size += len(chunk)
        if size > _LARGEST_ANSWER:
            raise LockError(f"the npm registry says more than {_LARGEST_ANSWER} bytes about {name}")
        yield chunk


def _latest(document: dict[str, Any]) -> str | None:
    tags = document.get("dist-tags")
    latest = tags.get("latest") if isinstance(tags, dict) else None
    return latest if isinstance(latest, str) else None


def _sri(shasum: object) -> str | None:
    if not isinstance(shasum, str):
        return None
    try:
        return "sha1-" + base64.b64encode(bytes.fromhex(shasum)).decode()
    except ValueError:
        return None
