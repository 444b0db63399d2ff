"""The life of the server process: from its first worker to the last process it leaves to nobody."""

from __future__ import annotations

import asyncio
import gc
import signal
from typing import TYPE_CHECKING

from agentix_runtime.server.calls import Calls
from agentix_runtime.server.capture import Capture
from agentix_runtime.server.http import Server
from agentix_runtime.server.journal import Journal
from agentix_runtime.server.process import Limits, Reaper, Spawned, kill_children
from agentix_runtime.server.supervisor import Supervisor

if TYPE_CHECKING:
    from agentix_runtime.server.endpoint import Endpoint


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
    journal = Journal()
    capture = Capture(journal)
    supervisor = Supervisor(reaper, limits, worker, journal, capture)
    reaper.reap()  # the worker may have ended before anybody listened
    calls = Calls(supervisor, journal)
    server = Server(calls, secret, lambda: supervisor.worker_pid)
    listener = await loop.create_server(server, sock=endpoint.sock, backlog=4096)
    # What is loaded now stays; the collector need not look at it again.
    gc.freeze()
    try:
        await stop.wait()
    finally:
        if owner is not None:
            loop.remove_reader(owner)
        listener.close()
        await supervisor.close()
        server.close()
        calls.close()
        capture.close()
        loop.remove_signal_handler(signal.SIGCHLD)
        kill_children(within=2.0)
