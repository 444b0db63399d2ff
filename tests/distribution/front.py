"""What stands between a client and a real registry: it notes what passes, and can be unwell."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web
from yarl import URL

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Self

    Meddle = Callable[[web.Request], web.StreamResponse | None]

CHUNK = 64 * 1024


@dataclass(frozen=True)
class Seen:
    """One request that passed."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str] = field(repr=False)


def nothing(request: web.Request) -> None:
    """Let a request pass."""


class Front:
    """Listens on loopback for the registry *behind*; *meddle* may answer in its place.

    *cut* says after how many bytes of its body, sent or received, a request's connection dies;
    without *ranges* a part of a blob cannot be had; *throttle*, told how much of a body has passed,
    says whether the rest has to wait.
    """

    def __init__(self, behind: str, tls: ssl.SSLContext | None = None) -> None:
        self.behind = behind
        self.seen: list[Seen] = []
        self.meddle: Meddle = nothing
        self.cut: Callable[[web.Request], int | None] = nothing
        self.throttle: Callable[[web.Request, int], bool] = lambda request, passed: False
        self.ranges = True
        self.cuts = 0
        self.port = 0
        self._tls = tls
        self._connections: set[asyncio.Transport] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def address(self) -> str:
        """Where it is, as the first part of a name."""
        return f"127.0.0.1:{self.port}"

    def clear(self) -> None:
        """Forget what passed, and be well again."""
        self.seen.clear()
        self.meddle = nothing
        self.cut = nothing
        self.throttle = lambda request, passed: False
        self.ranges = True
        self.cuts = 0

    def uploads(self) -> list[str]:
        """Return the digests of the blobs that were sent."""
        return [each.query["digest"] for each in self.seen if each.method == "PUT" and each.query]

    def fetched(self) -> list[str]:
        """Return the digests of the blobs that were asked for."""
        found = [each.path for each in self.seen if each.method == "GET" and "/blobs/" in each.path]
        return [path.rpartition("/")[2] for path in found]

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Awaitable[None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)  # type: ignore[arg-type]

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=1 << 40)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _end(self) -> None:
        await self._runner.cleanup()
        await self._session.close()
        for connection in self._connections:
            # In Python 3.11, one with TLS that is over has lost what it would abort.
            with contextlib.suppress(AttributeError):
                connection.abort()  # whoever has not read what was said to it
        for _ in range(5):  # turns in which the loop ends them
            await asyncio.sleep(0)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(
            Seen(request.method, request.path, dict(request.query), dict(request.headers))
        )
        if request.transport is not None:
            self._connections.add(request.transport)
        answer = self.meddle(request)
        if answer is not None:
            return answer
        left = self.cut(request)
        # With its own Host, so that the registry says where the front is.
        unwanted = ["transfer-encoding", "connection", "expect"]
        unwanted += [] if self.ranges else ["range"]
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in unwanted]
        if self._tls is not None:
            headers.append(("X-Forwarded-Proto", "https"))
        url = URL(self.behind + request.raw_path, encoded=True)
        body = self._body(request, left) if request.can_read_body else None
        async with self._session.request(
            request.method, url, headers=headers, data=body, allow_redirects=False
        ) as response:
            kept = {
                k: v
                for k, v in response.headers.items()
                if k.lower() not in ("transfer-encoding", "connection")
            }
            passed = web.StreamResponse(status=response.status, headers=kept)
            await passed.prepare(request)
            if request.method == "HEAD":
                return passed
            sent = 0
            async for chunk in response.content.iter_chunked(CHUNK):
                if left is not None and sent + len(chunk) > left:
                    self.cuts += 1
                    await passed.write(chunk[: left - sent])
                    abort(request)
                    break
                sent += len(chunk)
                await self._held(request, sent)
                await passed.write(chunk)
            return passed

    async def _body(self, request: web.Request, left: int | None) -> AsyncIterator[bytes]:
        taken = 0
        async for chunk in request.content.iter_chunked(CHUNK):
            taken += len(chunk)
            if left is not None and taken > left:
                self.cuts += 1
                abort(request)
                raise ConnectionResetError
            await self._held(request, taken)
            yield chunk

    async def _held(self, request: web.Request, passed: int) -> None:
        """Wait as long as *throttle* says; break off when nobody waits for the answer any more.

        What such a client has sent may all be here, though it was told of none of it.
        """
        while self.throttle(request, passed):
            if request.transport is None:
                raise ConnectionResetError
            await asyncio.sleep(0.01)


def abort(request: web.Request) -> None:
    """End the connection of *request* at once."""
    if request.transport is not None:
        request.transport.abort()
