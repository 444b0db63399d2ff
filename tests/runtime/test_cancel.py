"""Cancelling a call ends the function; a call ends once, and runs at most once."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from local_runtime import LocalRuntime, failing, far

from agentix.errors import CallCancelled, CallTimeout, RemoteCallError


async def until_told(client: Any, text: str) -> None:
    """Wait until a function in the sandbox has noted something, for a bounded time."""
    async with asyncio.timeout(10):
        while text not in await client.remote(far.told):
            await asyncio.sleep(0.01)


async def test_cancelling_the_local_task_cancels_the_function(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        task = asyncio.create_task(client.remote(far.wait_and_tell, "local"))
        await until_told(client, "local began")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_told(client, "local cancelled")


async def test_wait_for_bounds_a_single_call(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        with pytest.raises(TimeoutError) as caught:
            await asyncio.wait_for(client.remote(far.wait_and_tell, "waited"), 1.5)
        assert not isinstance(caught.value, CallTimeout)
        await until_told(client, "waited cancelled")


async def test_a_blocked_thread_does_not_hold_up_the_end_of_its_call(shared: LocalRuntime) -> None:
    async with shared.client(timeout=0.3) as client, shared.client() as other:
        await other.remote(far.hold)
        with pytest.raises(CallTimeout, match="was cancelled, of which a thread hears"):
            await client.remote(far.block_until_release)
        # It blocks still: a thread cannot be stopped. Nothing comes of it, and nobody waits for it.
        await other.remote(far.release)


async def test_cancelling_a_call_leaves_others_alone(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        await client.remote(far.hold)
        calls = [asyncio.create_task(client.remote(far.await_release)) for _ in range(20)]
        calls += [asyncio.create_task(client.remote(far.block_until_release)) for _ in range(20)]
        await client.remote(far.held, 40)
        for call in calls[::2]:
            call.cancel()
        async with asyncio.timeout(20):
            # A thread that is blocked ends once it is not, and its call in the worker with it.
            while await client.remote(far.running) > 31:
                await asyncio.sleep(0.01)
        await client.remote(far.release)
        ended = await asyncio.gather(*calls, return_exceptions=True)
        for index, result in enumerate(ended):
            if index % 2 == 0:
                assert isinstance(result, asyncio.CancelledError)
            else:
                assert result == "released"


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.02, 0.05, 0.1])
async def test_a_call_cancelled_amid_a_large_body_leaves_nothing_and_no_harm(
    shared: LocalRuntime, delay: float
) -> None:
    """The fixture looks for what is left: memory in the server, a call in the worker."""
    async with shared.client() as client:
        task = asyncio.create_task(client.remote(far.noop, bytes(32 << 20)))
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.wait([task])
        data = os.urandom(1 << 20)
        assert await client.remote(far.noop, data) == data


async def test_try_remote_gives_cancellation_inside_as_a_failure(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        result = await client.try_remote(failing.afail, "cancelled")
        assert isinstance(getattr(result, "error", None), CallCancelled)
        assert isinstance(getattr(result, "error", None), RemoteCallError)
