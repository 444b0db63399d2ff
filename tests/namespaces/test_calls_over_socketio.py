"""Calls over Socket.IO, all of them or those that last: sizes, cuts, busy loops, proxies."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from local_runtime import LocalRuntime, far, plugin, python
from patience import eventually_async

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("size", [1000, 999_999, 1_000_001, 8 << 20, 64 << 20])
async def test_arguments_and_results_of_any_size(
    shared: LocalRuntime, make_host: Any, size: int
) -> None:
    async with make_host(shared.url, shared.token, http_sync_ms=None) as client:
        assert await client.remote(far.length, bytes(size)) == size
        assert len(await client.remote(far.blob, size)) == size
        assert await client.remote(far.anoop, bytes(size)) == bytes(size)


async def test_many_calls_at_once(shared: LocalRuntime, make_host: Any) -> None:
    async with make_host(shared.url, shared.token, http_sync_ms=None) as client:
        results = await asyncio.gather(*(client.remote(far.anoop, n) for n in range(500)))
        assert results == list(range(500))


async def test_a_call_that_lasts_is_awaited_over_socketio(
    shared: LocalRuntime, make_host: Any
) -> None:
    async with make_host(shared.url, shared.token, http_sync_ms=50) as client:
        await client.remote(far.asleep, 1.5)
        assert client.events.connected


@pytest.mark.parametrize("knobs", [{"http_sync_ms": None}, {"http_sync_ms": 5}])
async def test_cut_connections_cost_no_result(
    fresh: LocalRuntime, make_host: Any, make_wire: Any, knobs: dict[str, Any], tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    async with make_wire(fresh) as wire, make_host(wire.url, fresh.token, **knobs) as client:
        await client.remote(far.anoop)
        calls = [
            asyncio.create_task(client.remote(plugin.mark, str(marks), n, random.uniform(0, 3)))
            for n in range(60)
        ]
        for _ in range(3):
            await asyncio.sleep(random.uniform(0.5, 1.0))
            await client.remote(far.anoop)  # so that it is in touch, on a busy machine, too
            await wire.cut()
        assert await asyncio.gather(*calls) == list(range(60))
    assert sorted(map(int, marks.read_text().split())) == list(range(60)), "each ran once"


async def test_closing_while_the_connection_is_made_again_leaves_nothing(
    fresh: LocalRuntime, make_host: Any, make_wire: Any
) -> None:
    for _ in range(5):
        async with (
            make_wire(fresh) as wire,
            make_host(wire.url, fresh.token, http_sync_ms=None) as client,
        ):
            await client.remote(far.anoop)
            wire.broken = random.random() < 0.5
            await wire.cut()
            await asyncio.sleep(random.uniform(0, 0.2))
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.slow
@pytest.mark.parametrize("knobs", [{"http_sync_ms": None}, {"http_sync_ms": 100}])
async def test_a_host_that_is_busy_for_a_minute(
    fresh: LocalRuntime, make_host: Any, knobs: dict[str, Any]
) -> None:
    async with make_host(fresh.url, fresh.token, timeout=200, **knobs) as client:
        await client.remote(far.asleep, 1)
        call = asyncio.create_task(client.remote(far.asleep, 30))
        await eventually_async(lambda: client.events._asks, "it waits over Socket.IO")
        time.sleep(60)
        await asyncio.wait_for(call, 5)
        assert await client.remote(far.anoop, 1) == 1


_CALLS = """
import asyncio, sys
from agentix import AsyncClientNamespace, RuntimeClient
from local_runtime import far, plugin

class Host(AsyncClientNamespace):
    async def on_double(self, data):
        return data * 2

async def main():
    client = RuntimeClient(sys.argv[1], token=sys.argv[2], http_sync_ms=None)
    client.register_namespace(Host("/plugin"))
    async with client:
        assert await client.remote(far.anoop, 7) == 7
        assert await client.remote(plugin.request, "double", 7) == 14

asyncio.run(main())
"""


@pytest.mark.parametrize("tcp", [False, True])
def test_proxies_are_for_the_network(tcp: bool) -> None:
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "WS_PROXY", "NO_PROXY")
    proxies = dict.fromkeys(names, "socks5://127.0.0.1:9") | {"NO_PROXY": "10.0.0.0/8"}
    proxies |= {name.lower(): value for name, value in proxies.items()}
    environment = dict(os.environ, **proxies)
    with LocalRuntime(tcp=tcp, environment=environment) as runtime:
        command = [python(), "-c", _CALLS, runtime.url, runtime.token]
        subprocess.run(command, env=environment, check=True, timeout=60)
