"""Nobody moves for a while: the worker, its loop, the host's loop, or the collector that does."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from local_runtime import LocalRuntime, far, flows
from soak.busy import Where, busy

from agentix import CallTimeout, Ok, Result, RuntimeClient

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGER_THAN_A_PING = 26
"""Socket.IO's connections are pinged every 25 s, and a client's journal is asked for as often."""

SYNC = pytest.mark.parametrize("sync", [1000, 20, None])


async def test_a_stopped_worker_meets_the_timeout_and_goes_on_later(fresh: LocalRuntime) -> None:
    async with fresh.client() as client, fresh.client(timeout=0.5) as hasty:
        pid = await client.remote(far.process)
        await hasty.remote(far.noop)
        stream = client.remote(flows.anumbers, 100, "stopped")
        assert await anext(stream) == 0
        os.kill(pid, signal.SIGSTOP)
        try:
            start = time.perf_counter()
            for _ in range(2):
                with pytest.raises(CallTimeout, match=r"no result within 0.5 s"):
                    await hasty.remote(far.noop)
            with pytest.raises(CallTimeout, match=r"no item within 0.5 s"):
                async for _ in hasty.remote(flows.numbers, 3):
                    pass
            assert time.perf_counter() - start < 3
            assert (await client.health()).worker_pid == pid
        finally:
            os.kill(pid, signal.SIGCONT)
        assert await client.remote(far.process) == pid
        assert [n async for n in stream] == [*range(1, 100)]
        # Nothing that was called meanwhile goes on for nobody.
        async with asyncio.timeout(10):
            while await client.remote(far.running) > 1:
                await asyncio.sleep(0.02)


async def test_a_stopped_worker_that_is_cancelled_for_long_is_replaced() -> None:
    with LocalRuntime(settings="grace=0.5") as runtime:
        async with runtime.client() as client, runtime.client(timeout=0.3) as hasty:
            pid = await client.remote(far.process)
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(CallTimeout):
                await hasty.remote(far.noop)
            assert isinstance(await another(client, pid), Ok)
            assert (await client.health()).worker_pid != pid


@pytest.mark.slow
@pytest.mark.parametrize("where", ["sandbox", "host"])
async def test_a_busy_loop_costs_time_and_nothing_else(fresh: LocalRuntime, where: Where) -> None:
    await busy(fresh, where, LONGER_THAN_A_PING)


@pytest.fixture
def collecting() -> Iterator[None]:
    """Collect garbage here all the time, as finalizers then run at any place."""
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def another(client: RuntimeClient, pid: int) -> Result[int]:
    """Wait until calls have another worker, of those that are not answered in the first one."""
    async with asyncio.timeout(20):
        while (await client.health()).worker_pid in (pid, None):
            await asyncio.sleep(0.05)
        return await client.try_remote(far.process)


@SYNC
async def test_500_calls_while_garbage_is_collected_at_every_step(
    fresh: LocalRuntime, collecting: None, sync: int | None
) -> None:
    async with RuntimeClient(fresh.url, token=fresh.token, http_sync_ms=sync) as client:
        await client.remote(gc.set_threshold, 1)
        before = await client.remote(gc.get_threshold)
        assert before[0] == 1

        async def call(number: int) -> Any:
            value = {"number": number, "list": [{}] * (number % 7)}
            match number % 4:
                case 0:
                    return await client.remote(far.noop, value) == value
                case 1:
                    return await client.remote(far.anoop, value) == value
                case 2:
                    return [n async for n in client.remote(flows.anumbers, 5)] == [*range(5)]
                case _:
                    size = 300_000 if number % 20 == 3 else 10
                    return await client.remote(far.blob, size) == bytes(size)

        for start in range(0, 500, 20):
            calls = (call(number) for number in range(start, start + 20))
            assert all(await asyncio.gather(*calls))
