"""Connections that break all the time cost no result; one to nobody costs three seconds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from typing import TYPE_CHECKING

import pytest
from local_runtime import LocalRuntime, far, flows
from local_runtime.proxy import Proxy
from soak.far import counts
from soak.load import Load, Near

from agentix import RuntimeUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

SYNC = pytest.mark.parametrize("sync", [1000, 20, None])


@pytest.fixture(scope="module", params=["unix", "tcp"])
def runtime(request: pytest.FixtureRequest) -> Iterator[LocalRuntime]:
    with LocalRuntime(tcp=request.param == "tcp") as made:
        yield made


@contextlib.asynccontextmanager
async def cutting(proxy: Proxy, pause: float) -> AsyncIterator[None]:
    """Break all connections again and again."""

    async def cut() -> None:
        while True:
            await asyncio.sleep(pause)
            proxy.cut()

    task = asyncio.create_task(cut())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@SYNC
async def test_a_connection_cut_every_50_ms_costs_no_call_its_result(
    runtime: LocalRuntime, sync: int | None
) -> None:
    name = os.urandom(8).hex()
    async with Proxy(runtime) as proxy, proxy.client(http_sync_ms=sync) as client:
        await client.remote(far.noop)
        async with cutting(proxy, 0.05):
            calls = [client.remote(flows.once, f"{name}{n}", 4.5, n) for n in range(5)]
            assert await asyncio.gather(*calls) == [(1, bytes(n)) for n in range(5)]
            # One call that begins only now, and a thread's.
            assert await client.remote(far.noop, 7) == 7
            assert [n async for n in client.remote(flows.anumbers, 300)] == [*range(300)]
            slow = client.remote(flows.slow, 3.0)
            assert [item async for item in slow] == ["first", "second"]


async def test_a_hundred_cuts_at_random_in_mixed_calls_lose_and_repeat_nothing(
    runtime: LocalRuntime, tmp_path: Path
) -> None:
    chance = random.Random()
    near = Near()
    async with contextlib.AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy(runtime))
        clients = {
            "near": proxy.client(),
            "cut": proxy.client(http_sync_ms=20),
            "far": proxy.client(http_sync_ms=None),
            "hasty": proxy.client(timeout=0.2),
        }
        clients["cut"].register_namespace(near)
        for client in clients.values():
            await stack.enter_async_context(client)
        load = Load(clients, proxy.client, tmp_path, near)
        stack.enter_context(load.heard())
        await clients["cut"].remote(counts)
        cuts = 0

        async def cut() -> None:
            nonlocal cuts
            for cuts in range(101):
                await asyncio.sleep(chance.uniform(0.01, 0.2))
                if cuts % 2:
                    proxy.cut()
                else:
                    proxy.cut_after(chance.choice(["there", "back"]), chance.randrange(50_000))

        async with asyncio.TaskGroup() as group:
            group.create_task(cut())
            for _ in range(10):
                group.create_task(load.calls(lambda: cuts < 100))
        load.check()
    load.check()
    assert load.exited == 0
    assert len(load.made) >= 14, load.made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "linger"), [(flows.once, 0.0), (flows.slow, 0.3), (flows.once, 1.2)]
)
async def test_nobody_behind_a_tunnel_that_accepts_is_a_definite_error(
    function: object, linger: float
) -> None:
    with LocalRuntime() as runtime:
        async with Proxy(runtime) as proxy, proxy.client(timeout=None) as client:
            if function is flows.once:
                call: asyncio.Task[object] = asyncio.create_task(
                    client.remote(flows.once, "never", 60)
                )
                while not await client.remote(flows.ran, "never"):
                    await asyncio.sleep(0.01)
            else:
                stream = client.remote(flows.slow, 60)
                assert await anext(stream) == "first"
                call = asyncio.create_task(anext(stream))
            proxy.linger = linger
            start = time.perf_counter()
            runtime.process.kill()
            with pytest.raises(RuntimeUnreachable, match="closed the connection"):
                await call
            assert time.perf_counter() - start < 3
            for sync in (1000, None):
                start = time.perf_counter()
                async with proxy.client(timeout=None, http_sync_ms=sync) as other:
                    with pytest.raises(RuntimeUnreachable):
                        await other.remote(far.noop)
                    assert time.perf_counter() - start < 3 + linger
