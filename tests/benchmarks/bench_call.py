"""The call path next to its limits, both sides measured in the same run.

Bare aiohttp on a Unix socket, and one hop over a socket pair to a child process, are what a call is
made of; it can hardly be faster than they are.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import aiohttp
from aiohttp import web
from local_runtime import LocalRuntime, far
from row import Row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from agentix.client import RuntimeClient

_LARGE = 64 << 20


def rows() -> Iterator[Row]:
    """Measure and yield one row after the other."""
    start, memory = asyncio.run(_start())
    yield Row("server start to first result", start, "s", 0.35)
    yield Row("memory of both processes", memory, "MiB", 75)
    found = asyncio.run(_run())
    floor = (found["echo"] + found["pipe"]) * 1e3
    for what, name in (("no-op call, p50", "call"), ("the same, in a thread", "sync")):
        yield Row(what, found[name] * 1e3, "ms", 1.5, floor, "echo + pipe", relative=True)
    for what, name in (("64 callers", "call/s"), ("the same, in threads", "sync/s")):
        bare = found["echo/s"]
        yield Row(what, found[name], "/s", 0.6, bare, "bare", relative=True, at_least=True)
    for what, name, against in (
        ("64 MiB argument", "argument", "up"),
        ("64 MiB result", "result", "down"),
    ):
        yield Row(what, found[name], "s", 1.5, found[against], "bare aiohttp", relative=True)
    yield Row("500 calls that sleep 0.5 s", found["500"], "s", 0.58)
    yield Row("24 calls that block 0.5 s", found["24"], "s", 0.7)


async def _serve_bare(path: str) -> None:
    async def handle(request: web.BaseRequest) -> web.Response:
        body = await request.read()
        return web.Response(body=bytes(_LARGE) if request.path == "/down" else body[:256])

    server = web.Server(handle, access_log=None)
    runner = web.ServerRunner(server)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    await asyncio.Event().wait()


def _bare(path: str) -> None:
    web.BaseRequest._client_max_size = 1 << 30  # the default argument of the bare server's requests
    asyncio.run(_serve_bare(path))


def _hop(sock: socket.socket) -> None:
    async def main() -> None:
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        while data := await reader.read(1 << 16):
            writer.write(data)

    asyncio.run(main())


@contextmanager
def _child(target: Callable[..., None], *args: Any) -> Iterator[None]:
    process = multiprocessing.get_context("fork").Process(target=target, args=args, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


async def _p50(call: Callable[[], Awaitable[Any]], times: int = 1500) -> float:
    for _ in range(200):
        await call()
    took = []
    for _ in range(times):
        start = time.perf_counter()
        await call()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


async def _rate(call: Callable[[], Awaitable[Any]], callers: int = 64, total: int = 4000) -> float:
    left = iter(range(total))

    async def caller() -> None:
        for _ in left:
            await call()

    start = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return total / (time.perf_counter() - start)


async def _once(call: Awaitable[Any]) -> float:
    start = time.perf_counter()
    await call
    return time.perf_counter() - start


async def _median(call: Callable[[], Awaitable[Any]], times: int = 7) -> float:
    return statistics.median([await _once(call()) for _ in range(times)])


@asynccontextmanager
async def _echo(path: str) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.UnixConnector(path, limit=0)
    async with aiohttp.ClientSession(
        "http://bare", connector=connector, trust_env=False
    ) as session:
        yield session


async def _compare(
    client: RuntimeClient, bare: aiohttp.ClientSession, hop: socket.socket
) -> dict[str, float]:
    """Measure both sides in turns, so that a busy moment of the machine falls on both."""

    async def echo(data: bytes = b"x" * 100, path: str = "/") -> bytes:
        async with bare.post(path, data=data) as response:
            return await response.read()

    reader, writer = await asyncio.open_unix_connection(sock=hop)

    async def pipe() -> None:
        writer.write(b"x" * 100)
        await reader.read(1 << 16)

    rounds: dict[str, list[float]] = {}

    async def note(name: str, measured: Awaitable[float]) -> None:
        rounds.setdefault(name, []).append(await measured)

    for _ in range(3):
        await note("echo", _p50(echo))
        await note("pipe", _p50(pipe))
        await note("call", _p50(lambda: client.remote(far.anoop, 1)))
        await note("sync", _p50(lambda: client.remote(far.noop, 1)))
        await note("echo/s", _rate(echo))
        await note("call/s", _rate(lambda: client.remote(far.anoop, 1)))
        await note("sync/s", _rate(lambda: client.remote(far.noop, 1)))
        await note("up", _median(lambda: echo(bytes(_LARGE), "/up"), 3))
        await note("down", _median(lambda: echo(b"", "/down"), 3))
        await note("argument", _median(lambda: client.remote(far.length, bytes(_LARGE)), 3))
        await note("result", _median(lambda: client.remote(far.blob, _LARGE), 3))
        await note(
            "500", _once(asyncio.gather(*(client.remote(far.asleep, 0.5) for _ in range(500))))
        )
        await note("24", _once(asyncio.gather(*(client.remote(far.sleep, 0.5) for _ in range(24)))))
    writer.close()
    return {name: statistics.median(values) for name, values in rounds.items()}


async def _start() -> tuple[float, float]:
    """Measure a start to the first result, in seconds, and both processes' memory, in MiB."""
    took, memory = [], []
    for _ in range(5):
        with LocalRuntime() as runtime:
            async with runtime.client() as client:
                await client.remote(far.anoop, 1)
                took.append(time.perf_counter() - runtime.started)
                health = await client.health()
                memory.append(_resident(health.pid) + _resident(health.worker_pid or 0))
    return statistics.median(took), statistics.median(memory) / (1 << 20)


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def _run() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/bare"
        ours, theirs = socket.socketpair()
        with _child(_bare, path), _child(_hop, theirs), LocalRuntime() as runtime:
            while not Path(path).exists():
                await asyncio.sleep(0.01)
            async with runtime.client() as client, _echo(path) as bare:
                found = await _compare(client, bare, ours)
        theirs.close()
        return found
