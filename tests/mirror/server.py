"""A web server whose answers are told one by one, the bad ones too."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    Behaviour = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


@dataclass
class Server:
    """A web server in a thread. Each file has behaviours, one for each request; the last stays."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    behaviours: dict[str, list[Behaviour]] = field(default_factory=dict)
    requests: list[web.Request] = field(default_factory=list)
    busy: int = 0
    busiest: int = 0

    def offer(self, path: str, content: bytes, *behaviours: Behaviour) -> None:
        self.files[path] = content
        self.behaviours[path] = list(behaviours)

    def asked(self, path: str) -> list[web.Request]:
        return [request for request in self.requests if request.path == path]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        content = self.files.get(request.path)
        if content is None:
            raise web.HTTPNotFound
        behaviours = self.behaviours[request.path]
        behaviour = (
            behaviours[0] if len(behaviours) == 1 else behaviours.pop(0) if behaviours else good
        )
        self.busy += 1
        self.busiest = max(self.busy, self.busiest)
        try:
            return await behaviour(request, content)
        finally:
            self.busy -= 1


async def good(request: web.Request, content: bytes) -> web.StreamResponse:
    start = request.http_range.start or 0
    if not start:
        return web.Response(body=content)
    if start >= len(content):
        return web.Response(status=416)
    headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
    return web.Response(status=206, body=content[start:], headers=headers)


async def cut(request: web.Request, content: bytes) -> web.StreamResponse:
    """Send half of what is left, then break the connection."""
    start = request.http_range.start or 0
    response = web.StreamResponse(status=206 if start else 200)
    if start:
        response.headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
    response.content_length = len(content) - start
    await response.prepare(request)
    await response.write(content[start : start + (len(content) - start) // 2])
    assert request.transport
    request.transport.close()
    return response


async def whole(request: web.Request, content: bytes) -> web.StreamResponse:
    """Know nothing of ranges."""
    return web.Response(body=content)


async def confused(request: web.Request, content: bytes) -> web.StreamResponse:
    """Answer a range with another one."""
    if request.http_range.start:
        headers = {"Content-Range": f"bytes 0-{len(content) - 1}/{len(content)}"}
        return web.Response(status=206, body=content, headers=headers)
    return web.Response(body=content)


def status(code: int, **headers: str) -> Behaviour:
    async def behaviour(request: web.Request, content: bytes) -> web.StreamResponse:
        return web.Response(
            status=code, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    return behaviour


def instead(other: bytes) -> Behaviour:
    async def behaviour(request: web.Request, content: bytes) -> web.StreamResponse:
        return await good(request, other)

    return behaviour


async def silent(request: web.Request, content: bytes) -> web.StreamResponse:
    """Begin, and never go on."""
    response = web.StreamResponse()
    response.content_length = len(content)
    await response.prepare(request)
    await response.write(content[:1000])
    await asyncio.sleep(3600)
    return response


def slow(pause: float) -> Behaviour:
    async def behaviour(request: web.Request, content: bytes) -> web.StreamResponse:
        start = request.http_range.start or 0
        response = web.StreamResponse(status=206 if start else 200)
        if start:
            response.headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        response.content_length = len(content) - start
        await response.prepare(request)
        step = max(1, len(content) // 20)
        for position in range(start, len(content), step):
            await response.write(content[position : position + step])
            await asyncio.sleep(pause)
        return response

    return behaviour


@contextmanager
def serving() -> Iterator[Server]:
    """Run a server in a thread for as long as the context lasts."""
    server = Server()
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def serve() -> None:
        application = web.Application()
        application.router.add_route("GET", "/{path:.*}", server.answer)
        runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        try:
            await ended.wait()
        finally:
            await runner.cleanup()

    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(10)
        yield server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
