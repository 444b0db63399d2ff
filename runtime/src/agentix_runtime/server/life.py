"""The life of the server process: from its first worker to the last process it leaves to nobody."""

from __future__ import annotations

import asyncio
import gc
import signal
from typing import TYPE_CHECKING, Final

from aiohttp import web

from agentix_runtime.server.http import Server
from agentix_runtime.server.process import Limits, Reaper, Spawned, kill_children
from agentix_runtime.server.supervisor import Supervisor

if TYPE_CHECKING:
    from agentix_runtime.server.endpoint import Endpoint

_READ_BUFFER: Final = 1 << 20
_KEEP_ALIVE: Final = 3600.0
"""Longer than any client keeps an idle connection, so that none is closed under a request."""


async def serve(
    endpoint: Endpoint, secret: str, limits: Limits, worker: Spawned, owner: int | None = None
) -> None:
    """Serve until SIGTERM or SIGINT, then end everything that runs here, in bounded time.

    *owner* is a descriptor that ends, unread, when whoever wanted this sandbox is gone.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    if owner is not None:
        loop.add_reader(owner, stop.set)
    reaper = Reaper(loop)
    supervisor = Supervisor(reaper, limits, worker)
    reaper.reap()  # the worker may have ended before anybody listened
    http = web.Server(
        Server(supervisor, secret).handle,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=_KEEP_ALIVE,
        read_bufsize=_READ_BUFFER,
        auto_decompress=False,
    )
    listener = await loop.create_server(http, sock=endpoint.sock, backlog=4096)
    # What is loaded now stays; the collector need not look at it again.
    gc.freeze()
    try:
        await stop.wait()
    finally:
        if owner is not None:
            loop.remove_reader(owner)
        listener.close()
        await supervisor.close()
        await http.shutdown(timeout=1.0)
        loop.remove_signal_handler(signal.SIGCHLD)
        kill_children(within=2.0)
