"""Connections that break: each call runs once, and its result arrives or a definite error does."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING

import pytest
from local_runtime import LocalRuntime, far, flows, processes_with
from local_runtime.proxy import Proxy
from patience import eventually_async

from agentix import CallTimeout, RuntimeClient, RuntimeUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BULK = 3 << 20


@pytest.fixture(scope="module", params=["unix", "tcp"])
def runtime(request: pytest.FixtureRequest) -> Iterator[LocalRuntime]:
    with LocalRuntime(tcp=request.param == "tcp") as made:
        yield made


@pytest.fixture
def name() -> str:
    return os.urandom(8).hex()


async def test_a_connection_cut_before_the_request_arrives(
    runtime: LocalRuntime, name: str
) -> None:
    async with Proxy(runtime) as proxy, proxy.client() as client:
        await client.remote(far.noop)
        for count in (1, 100, 300):
            cut = proxy.cut_after("there", count)
            assert await client.remote(flows.once, f"{name}{count}", 0.0) == (1, b"")
            assert cut.is_set()


async def test_a_connection_cut_amid_a_large_argument(runtime: LocalRuntime) -> None:
    data = os.urandom(BULK)
    async with Proxy(runtime) as proxy, proxy.client() as client:
        for count in (400, 70_000, BULK - 1000, BULK):
            cut = proxy.cut_after("there", count)
            assert await client.remote(far.noop, data) == data
            assert cut.is_set()


async def test_a_connection_cut_during_a_call(runtime: LocalRuntime, name: str) -> None:
    async with Proxy(runtime) as proxy, proxy.client() as client:
        call = asyncio.create_task(client.remote(flows.once, name, 0.6))
        while not await client.remote(flows.ran, name):
            await asyncio.sleep(0.01)
        for _ in range(3):
            proxy.cut()
            await asyncio.sleep(0.1)
        assert await call == (1, b"")


@pytest.mark.parametrize("count", [1, 17, 60, 90, 65_536, BULK - 100, BULK + 50])
async def test_a_connection_cut_while_the_result_arrives(
    runtime: LocalRuntime, name: str, count: int
) -> None:
    async with Proxy(runtime) as proxy, proxy.client() as client:
        call = asyncio.create_task(client.remote(flows.once, name, 0.3, BULK))
        while not await client.remote(flows.ran, name):
            await asyncio.sleep(0.01)
        cut = proxy.cut_after("back", count)
        assert await call == (1, bytes(BULK))
        assert cut.is_set()


async def test_a_connection_cut_while_socket_io_waits(runtime: LocalRuntime, name: str) -> None:
    async with Proxy(runtime) as proxy, proxy.client(http_sync_ms=0) as client:
        await client.remote(far.asleep, 2.1)  # from now on there is a Socket.IO connection
        call = asyncio.create_task(client.remote(flows.once, name, 2.0, BULK))
        for _ in range(4):
            await asyncio.sleep(0.4)
            proxy.cut()
        assert await call == (1, bytes(BULK))


async def test_a_hundred_cuts_at_random_cost_no_call_its_result(
    runtime: LocalRuntime, name: str
) -> None:
    chance = random.Random(7)
    turns = [0] * 8

    def all_go_on() -> Callable[[], bool]:
        before = [*turns]
        return lambda: all(now > then for now, then in zip(turns, before, strict=True))

    async def cut() -> None:
        for number in range(100):
            if number % 4 == 0:  # a machine too busy for any answer between cuts could end no call
                await eventually_async(all_go_on(), "calls end")
            await asyncio.sleep(chance.uniform(0.002, 0.04))
            proxy.cut()

    async def caller(number: int) -> None:
        while not cutting.done():
            what = f"{name}-{number}-{turns[number]}"
            size = chance.choice([0, 10, 300_000])
            found = await client.remote(flows.once, what, chance.choice([0, 0.01, 0.1]), size)
            assert found == (1, bytes(size))
            turns[number] += 1

    async with Proxy(runtime) as proxy, proxy.client() as client:
        cutting = asyncio.create_task(cut())
        await asyncio.gather(*map(caller, range(8)))
        await cutting


async def test_a_cancelled_call_ends_also_where_its_connection_breaks(
    runtime: LocalRuntime, name: str
) -> None:
    async with Proxy(runtime) as proxy, proxy.client() as client:
        call = asyncio.create_task(client.remote(far.wait_and_tell, name))
        while f"{name} began" not in await client.remote(far.told):
            await asyncio.sleep(0.01)
        proxy.cut()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(10):
            while f"{name} cancelled" not in await client.remote(far.told):
                await asyncio.sleep(0.01)


async def test_a_runtime_that_cannot_be_reached_any_more_is_a_definite_error(
    runtime: LocalRuntime, name: str
) -> None:
    async with Proxy(runtime) as proxy, proxy.client() as client:
        await client.remote(far.noop)
        names = [f"{name}-{number}" for number in range(5)]
        under_way = asyncio.gather(*(client.try_remote(far.wait_and_tell, one) for one in names))
        while not {f"{one} began" for one in names} <= {*await client.remote(far.told)}:
            await asyncio.sleep(0.01)
        proxy.refusing = True
        proxy.cut()
        start = time.perf_counter()
        for result in await under_way:
            assert isinstance(getattr(result, "error", None), RuntimeUnreachable)
        assert time.perf_counter() - start < 3
        start = time.perf_counter()
        with pytest.raises(RuntimeUnreachable):
            await client.remote(far.noop)
        assert time.perf_counter() - start < 3
        proxy.refusing = False
        assert await client.remote(far.noop, 1) == 1


@pytest.mark.parametrize("sync", [1000, 0, None])
async def test_a_killed_server_is_a_definite_error_and_calls_after_that_fail_at_once(
    sync: int | None,
) -> None:
    with LocalRuntime() as runtime:
        async with RuntimeClient(runtime.url, token=runtime.token, http_sync_ms=sync) as client:
            await client.remote(far.asleep, 2.2)  # now there is a Socket.IO connection, too
            under_way = asyncio.create_task(client.try_remote(far.asleep, 60))
            await eventually_async(lambda: client._events._asks, "it waits over Socket.IO")
            start = time.perf_counter()
            runtime.process.kill()
            result = await under_way
            assert isinstance(getattr(result, "error", None), RuntimeUnreachable), result
            assert time.perf_counter() - start < 3
            start = time.perf_counter()
            with pytest.raises(RuntimeUnreachable, match="refused"):
                await client.remote(far.noop)
            assert time.perf_counter() - start < (0.5 if sync is not None else 3)
            start = time.perf_counter()
        assert time.perf_counter() - start < 2.5
        async with asyncio.timeout(10):
            while processes_with(runtime.folder):
                await asyncio.sleep(0.02)


async def test_a_held_up_network_meets_the_timeout_and_harms_nothing_later(
    runtime: LocalRuntime,
) -> None:
    async with Proxy(runtime) as proxy, proxy.client(timeout=0.5) as client:
        await client.remote(far.noop)
        proxy.holding = True
        start = time.perf_counter()
        for _ in range(2):
            with pytest.raises(CallTimeout):
                await client.remote(far.noop)
        assert time.perf_counter() - start < 2
        proxy.holding = False
        assert await client.remote(far.noop, 5) == 5


async def test_closing_fails_what_is_under_way_and_ends_it_in_the_sandbox(
    runtime: LocalRuntime, name: str
) -> None:
    async with runtime.client() as other:
        async with Proxy(runtime) as proxy:
            client = proxy.client()
            call = asyncio.create_task(client.remote(far.wait_and_tell, name))
            while f"{name} began" not in await other.remote(far.told):
                await asyncio.sleep(0.01)
            await client.close()
            with pytest.raises(RuntimeUnreachable, match="the client was closed"):
                await call
            with pytest.raises(RuntimeError, match="is closed"):
                await client.remote(far.noop)
            await client.close()
        async with asyncio.timeout(5):
            while f"{name} cancelled" not in await other.remote(far.told):
                await asyncio.sleep(0.01)
