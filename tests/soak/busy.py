"""A loop that does nothing else for longer than connections are silent in ordinary life."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING, Literal, TypeAlias

from local_runtime import far, flows, hard

from agentix import RuntimeClient

if TYPE_CHECKING:
    from local_runtime import LocalRuntime

Where: TypeAlias = Literal["sandbox", "host"]


async def busy(runtime: LocalRuntime, where: Where, seconds: float) -> None:
    """Hold up a loop, and see that all calls and streams end as if nothing had been."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                RuntimeClient(runtime.url, token=runtime.token, http_sync_ms=sync)
            )
            for sync in (1000, 20, None)
        ]
        names = [os.urandom(8).hex() for _ in range(4)]
        waiting = asyncio.gather(
            *(
                client.remote(flows.once, name + str(number), 2.5)
                for number, client in enumerate(clients)
                for name in names
            )
        )
        streams = [client.remote(flows.anumbers, 300) for client in clients]
        assert [await anext(stream) for stream in streams] == [0, 0, 0]
        while not await clients[0].remote(flows.ran, f"{names[-1]}2"):
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.5)  # by then, some wait over HTTP, others by Socket.IO
        if where == "host":
            time.sleep(seconds)
        else:
            began = time.monotonic()
            blocking = asyncio.create_task(clients[0].remote(hard.logs_and_blocks, seconds))
            await asyncio.sleep(0.5)
            later = [asyncio.create_task(client.remote(far.anoop, 7)) for client in clients]
            await blocking
            assert time.monotonic() - began >= seconds
            async with asyncio.timeout(5):
                assert await asyncio.gather(*later) == [7, 7, 7]
        async with asyncio.timeout(10):
            assert await waiting == [(1, b"")] * 12
            for stream, client in zip(streams, clients, strict=True):
                assert [number async for number in stream] == [*range(1, 300)]
                assert await client.remote(far.noop, "still") == "still"
