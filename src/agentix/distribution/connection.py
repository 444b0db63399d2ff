"""A connection with one registry: who asks, where it leads, and what may be said of it.

Nothing that proves who the user is goes to anybody but the registry and whom it names as the issuer
of its tokens, and no address gets into a message: it may be signed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
from yarl import URL

from agentix.distribution.authority import Authority
from agentix.distribution.certificates import trusted
from agentix.distribution.login import find_login
from agentix.distribution.place import is_loopback
from agentix.errors import AgentixError, DistributionError
from agentix.patience import TRANSIENT, Patience, retry_after
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Self, TypeVar

    from agentix.distribution.place import Place

    T = TypeVar("T")
    # Gives a body anew, for each try.
    Body = Callable[[], AsyncIterator[bytes]]

_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=60, sock_connect=20, sock_read=60)
# It has to digest what it was sent.
_UNHURRIED = aiohttp.ClientTimeout(total=None, connect=60, sock_connect=20, sock_read=300)
_ANSWERS = 300.0  # seconds that a request may take, besides what it carries
_SLOWEST = 16 * 1024  # bytes a second; what is slower over the whole is given up
_CONNECTIONS = 8
_BUFFER = 512 * 1024
_MOST_REDIRECTS = 5
_MOVED = frozenset({301, 302, 303, 307, 308})
_COMPLAINT = 64 * 1024
_WORD = re.compile(r"\S+")
_SIGNED = frozenset("?@")  # what an address has that carries a signature or a password


class Passing(Exception):  # noqa: N818 - never leaves this package
    """A request failed, and another try may go better."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class Connection:
    """Requests to the repository of *place*, made with the user's own login; *scope* is what for.

    Plain HTTP is spoken only with this machine, or where *insecure* allows it.
    """

    def __init__(self, place: Place, scope: str, *, insecure: bool, patience: Patience) -> None:
        self.place = place
        self._scope = scope
        self._insecure = insecure
        self._patience = patience

    async def __aenter__(self) -> Self:
        login = await asyncio.to_thread(find_login, self.place)
        self._authority = Authority(self.place, login, self._ask_for_token)
        context = await asyncio.to_thread(trusted, self.place.listens)
        self._session = aiohttp.ClientSession(
            timeout=_TIMEOUT,
            trust_env=False,  # it would send what netrc has, too
            auto_decompress=False,  # digests are those of the bytes as they are kept
            cookie_jar=aiohttp.DummyCookieJar(),
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=context),
            read_bufsize=_BUFFER,
            headers={"Accept-Encoding": "identity", "User-Agent": "agentix"},
        )
        try:
            scheme = await self._scheme()
        except BaseException:
            await self._session.close()
            raise
        self._origin = URL(f"{scheme}://{self.place.listens}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def patiently(self, action: Callable[[], Awaitable[T]]) -> T:
        """Do *action*, again where it fails with Passing, until it has been tried enough."""
        for failures in range(1, self._patience.tries + 1):
            try:
                return await action()
            except Passing as problem:
                if failures == self._patience.tries:
                    raise self.failed(f"{problem} (tried {failures} times)") from None
                await asyncio.sleep(self._patience.delay(failures, problem.after))
        raise AssertionError  # the last try returned or raised

    def failed(self, reason: str) -> DistributionError:
        """Return the error for what does not go with this registry."""
        return DistributionError(f"{self.place.host}: {reason}; check the network and try again")

    def url(self, path: str) -> URL:
        """Return the address of *path* in the repository."""
        return self._origin.with_path(f"/v2/{self.place.repository}/{path}")

    @asynccontextmanager
    async def answer(
        self,
        method: str,
        url: URL,
        headers: dict[str, str] | None = None,
        body: bytes | Body | None = None,
        *,
        scope: str = "",
        size: int = 0,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make one request, twice if the registry asks who wants it, and follow where it leads.

        *scope* says what it is for, *size* how much it carries. Raises Passing when another try may
        go better, DistributionError when none will.
        """
        scope = scope or self._scope
        try:
            async with asyncio.timeout(_ANSWERS + size / _SLOWEST) as patience:
                for hop in range(_MOST_REDIRECTS + 1):
                    response = await self._send(method, url, headers or {}, body, scope)
                    if response.status not in _MOVED or method not in ("GET", "HEAD"):
                        break
                    url = self.location(response, url)
                    response.close()
                    if hop == _MOST_REDIRECTS:
                        raise self.failed("it leads round in circles")
                patience.reschedule(None)  # what is read from here on has bounds of its own
            async with response:
                yield response
        except TimeoutError:
            raise Passing("no answer in time") from None
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
            raise DistributionError(
                f"{self.place.host}: {_reason(error)}; SSL_CERT_FILE names the certificates to"
                " trust, and --insecure allows HTTP without any"
            ) from None
        except (aiohttp.ClientError, ConnectionError) as error:
            if isinstance(error.__cause__, AgentixError):  # the body's own
                raise error.__cause__ from None
            raise Passing(_reason(error)) from None

    async def _send(
        self,
        method: str,
        url: URL,
        headers: dict[str, str],
        body: bytes | Body | None,
        scope: str,
    ) -> aiohttp.ClientResponse:
        for last in (False, True):
            # What a registry gave us for itself is for nobody else, wherever it sends us.
            ours = url.origin() == self._origin
            proof = self._authority.headers(scope) if ours else {}
            response = await self._session.request(
                method,
                url,
                headers=headers | proof,
                data=body() if callable(body) else body,
                allow_redirects=False,
                proxy=self._proxy(url),
                timeout=_TIMEOUT if body is None else _UNHURRIED,
            )
            if response.status != 401 or not ours:
                break
            asked = response.headers.getall("WWW-Authenticate", [])
            response.close()
            if last:
                raise self._authority.denied()
            await self._authority.satisfy(asked, scope, proof)
        return response

    async def _ask_for_token(
        self, url: URL, headers: dict[str, str], form: dict[str, str] | None
    ) -> tuple[int, bytes]:
        self._check(url)
        method = "GET" if form is None else "POST"
        async with self._session.request(
            method,
            url,
            headers=headers,
            data=form,
            allow_redirects=False,
            proxy=self._proxy(url),
        ) as response:
            _refuse_passing(response)
            return response.status, await bounded(response, _COMPLAINT)

    def location(self, response: aiohttp.ClientResponse, url: URL) -> URL:
        """Return where an answer leads; DistributionError where nobody should follow."""
        try:
            target = url.join(URL(response.headers["Location"], encoded=True))
            target.origin()
        except (KeyError, ValueError):
            raise self.failed("it leads nowhere") from None
        self._check(target)
        return target.with_fragment(None)

    def _check(self, url: URL) -> None:
        # A registry elsewhere has no business with what listens on this machine.
        plainly = self._insecure or (self._is_here and is_loopback(url.host or ""))
        if url.scheme != "https" and not (url.scheme == "http" and plainly):
            raise DistributionError(
                f"{self.place.host} leads to {plain(str(url.host))} without TLS, which is not safe;"
                " tell its owner, or allow it with --insecure"
            )

    async def expect(self, response: aiohttp.ClientResponse, *statuses: int) -> None:
        """Raise what an answer with another status than *statuses* means."""
        if response.status in statuses:
            return
        _refuse_passing(response)
        complaint = _complaint(await bounded(response, _COMPLAINT, cut=True))
        if response.status in (401, 403) and not complaint:
            raise self._authority.denied()
        raise DistributionError(
            f"{self.place.host} answered {response.status}{complaint} to"
            f" {response.method} of {self.place.repository}; check the name, and what this login"
            " may do there"
        )

    @property
    def _is_here(self) -> bool:
        """Whether the registry is on this machine."""
        return is_loopback(URL(f"https://{self.place.listens}").host or "")

    def _proxy(self, url: URL) -> str | None:
        """Return the user's proxy for *url*; this machine is reached without."""
        host = url.host or ""
        if is_loopback(host) or proxy_bypass(f"{host}:{url.port}"):
            return None
        proxies = getproxies_environment()
        found = proxies.get(url.scheme) or proxies.get("all")
        if not found:
            return None
        proxy = found if "://" in found else f"http://{found}"
        if not proxy.lower().startswith(("http://", "https://")):
            raise DistributionError(
                f"{host}: {url.scheme.upper()}_PROXY or ALL_PROXY names a proxy that does not speak"
                f" HTTP; set HTTPS_PROXY to one that does, or add {host} to NO_PROXY"
            )
        return proxy

    async def _scheme(self) -> str:
        """Return ``https``, or ``http`` where that is allowed and nobody speaks TLS."""
        host = URL(f"https://{self.place.listens}")
        if not (self._insecure or self._is_here):
            return "https"
        try:
            async with asyncio.timeout(20):
                async with self._session.get(host.with_path("/v2/"), proxy=self._proxy(host)):
                    return "https"
        except aiohttp.ClientConnectorCertificateError:
            return "https"  # the first request says why not
        except aiohttp.ClientConnectorSSLError:
            return "http"
        except (aiohttp.ClientError, OSError):  # nobody there, or nobody who understands
            return "http"


def _refuse_passing(response: aiohttp.ClientResponse) -> None:
    if response.status in TRANSIENT:
        after = retry_after(response.headers.get("Retry-After"))
        raise Passing(f"it answered {response.status}", after)


async def bounded(response: aiohttp.ClientResponse, limit: int, *, cut: bool = False) -> bytes:
    """Return the body of an answer; DistributionError, or what fits, when it is above *limit*."""
    data = bytearray()
    async with asyncio.timeout(_ANSWERS):
        async for piece in response.content.iter_any():
            data += piece
            if len(data) > limit:
                if cut:
                    break
                raise DistributionError(
                    f"{response.url.host} sent more than the {limit} bytes that it may"
                )
    return bytes(data[:limit])


def _complaint(body: bytes) -> str:
    """Return what a registry says of a refusal, without any address in it."""
    try:
        first = json.loads(body)["errors"][0]
        said = ": ".join(str(first[key]) for key in ("code", "message") if first.get(key))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ""
    return f" ({plain(_without_addresses(said), 160)})" if said else ""


def _reason(error: Exception) -> str:
    """Return why a connection failed, without any address in it."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"a proxy answered {error.status}"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted: {plain(cause.verify_message)}"
    if isinstance(cause, OSError) and cause.strerror:
        number = cause.errno or 0  # below zero it is none of the system's
        said = os.strerror(number) if number > 0 else cause.strerror
        return plain(_without_addresses(said))
    return plain(_without_addresses(str(error))) or type(error).__name__


def _without_addresses(text: str) -> str:
    return _WORD.sub(lambda word: "…" if _SIGNED & set(word[0]) else word[0], text)
