"""The life of the server process: from its first worker to the last process it leaves to nobody."""

from __future__ import annotations

import asyncio
import gc
import signal
from typing import TYPE_CHECKING

from agentix.wire.protocol import LEASE_ENDED
from agentix_runtime.server.calls import ABSENT, Calls
from agentix_runtime.server.capture import Capture
from agentix_runtime.server.events import Events
from agentix_runtime.server.http import Server
from agentix_runtime.server.journal import Journal
from agentix_runtime.server.lease import Lease
from agentix_runtime.server.logfile import LogFile
from agentix_runtime.server.process import Limits, Reaper, Spawned, kill_children
from agentix_runtime.server.supervisor import GRACE, Supervisor

if TYPE_CHECKING:
    from agentix_runtime.server.endpoint import Endpoint
    from agentix_runtime.server.kept import Bounds


async def serve(
    endpoint: Endpoint,
    secret: str,
    limits: Limits,
    worker: Spawned,
    owner: int | None = None,
    *,
    name: str = "unnamed",
    logs: str | None = None,
    lease: float | None = None,
    grace: float = GRACE,
    absent: float = ABSENT,
    bounds: Bounds | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, then end everything that runs here, in bounded time.

    *name* is what the sandbox is called; *logs* is the folder of its log file, unless the
    environment names one; *owner* is a descriptor that ends, unread, when whoever wanted this
    sandbox is gone; *lease* is for how many seconds nobody needs to hold it. Return the exit
    status.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    status = 0

    def lease_ended() -> None:
        nonlocal status
        if not stop.is_set():
            status = LEASE_ENDED
            stop.set()

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    if owner is not None:
        loop.add_reader(owner, stop.set)
    reaper = Reaper(loop)
    journal = Journal()
    file = LogFile.of(journal, name, logs)
    capture = Capture(journal)
    supervisor = Supervisor(reaper, limits, worker, journal, capture, grace=grace)
    reaper.reap()  # the worker may have ended before anybody listened
    calls = Calls(supervisor, journal, absent=absent, bounds=bounds)
    events = Events(calls, supervisor, journal.note, absent=absent)
    holds = Lease(lease, lease_ended)
    server = Server(calls, secret, lambda: supervisor.worker_pid, events.hand_over, holds.take)
    listener = await loop.create_server(server, sock=endpoint.sock, backlog=4096)
    # What is loaded now stays; the collector need not look at it again.
    gc.freeze()
    try:
        await stop.wait()
    finally:
        if owner is not None:
            loop.remove_reader(owner)
        listener.close()
        holds.close()
        await supervisor.close()
        server.close()
        await events.close()
        calls.close()
        capture.close()
        if file is not None:
            file.close()
        loop.remove_signal_handler(signal.SIGCHLD)
        kill_children(within=2.0)
    return status
