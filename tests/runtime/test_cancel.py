"""Cancelling a call ends the function; a call ends once, and runs at most once."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from local_runtime import LocalRuntime, far

from agentix.errors import CallCancelled, CallTimeout, RemoteCallError
from agentix.wire import arguments, messages
from agentix.wire.frames import body_prefix, pieces, split_body
from agentix.wire.messages import Call, Failure, Value
from agentix.wire.protocol import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager


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
            await asyncio.wait_for(client.remote(far.wait_and_tell, "waited"), 0.3)
        assert not isinstance(caught.value, CallTimeout)
        await until_told(client, "waited cancelled")


async def test_a_blocked_thread_does_not_hold_up_the_end_of_its_call(shared: LocalRuntime) -> None:
    async with shared.client(timeout=0.3) as client, shared.client() as other:
        start = time.perf_counter()
        with pytest.raises(CallTimeout):
            await client.remote(far.block_and_tell, "blocked", 1.5)
        assert time.perf_counter() - start < 1.2
        assert "blocked ended" not in await other.remote(far.told)
        await until_told(other, "blocked ended")  # a thread cannot be stopped; nothing comes of it


async def test_cancelling_a_call_leaves_others_alone(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        calls = [asyncio.create_task(client.remote(far.asleep, 0.5)) for _ in range(20)]
        calls += [asyncio.create_task(client.remote(far.sleep, 0.5)) for _ in range(20)]
        await asyncio.sleep(0.2)
        for call in calls[::2]:
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        for index, result in enumerate(ended):
            assert isinstance(result, asyncio.CancelledError) == (index % 2 == 0)


async def test_cancelling_while_a_large_body_is_sent_or_received(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        for delay in (0.0, 0.005, 0.02, 0.05, 0.1):
            task = asyncio.create_task(client.remote(far.noop, bytes(32 << 20)))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert await client.remote(far.noop, 1) == 1


class Raw:
    """Speaks to the server without the client."""

    def __init__(self, runtime: LocalRuntime, **headers: str) -> None:
        connector = aiohttp.UnixConnector(str(runtime.socket))
        default = {"Authorization": f"Bearer {runtime.token}", "Content-Type": CONTENT_TYPE}
        self.session = aiohttp.ClientSession(
            "http://runtime", connector=connector, headers=default | headers
        )

    async def call(self, call_id: str, name: str, *args: Any) -> Value | Failure:
        """Make a call with an id of one's own."""
        pickled = arguments.dump(args, {})
        call = Call(call_id, f"local_runtime.far::{name}", "values", 1 << 20, pickled.segments)
        parts = pieces(pickled.stream, pickled.buffers)
        body = body_prefix(messages.dump(call)) + b"".join(parts)
        async with self.session.post("/call", data=body) as response:
            assert response.status == 200, await response.text()
            head, _ = split_body(await response.read())
            return messages.load(head, Value, Failure)


def raw(runtime: LocalRuntime) -> AbstractAsyncContextManager[Raw]:
    """Open a raw session."""
    import contextlib

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Raw]:
        made = Raw(runtime)
        async with made.session:
            yield made
        await asyncio.sleep(0)

    return opened()


@pytest.mark.parametrize("name", ["wait_and_tell", "block_and_tell"])
async def test_delete_cancels_a_call_by_its_id(shared: LocalRuntime, name: str) -> None:
    extra = (1.0,) if name == "block_and_tell" else ()
    async with raw(shared) as server, shared.client() as client:
        running = asyncio.create_task(server.call(f"d-{name}", name, f"d-{name}", *extra))
        await until_told(client, f"d-{name} began")
        async with server.session.delete(f"/call/d-{name}") as response:
            assert response.status == 204
        message = await asyncio.wait_for(running, 5)
        assert isinstance(message, Failure)
        assert message.kind == "cancelled"
        async with server.session.delete(f"/call/d-{name}") as response:
            assert response.status == 404


async def test_a_function_that_refuses_to_be_cancelled_ends_with_its_value(
    shared: LocalRuntime,
) -> None:
    async with raw(shared) as server, shared.client() as client:
        running = asyncio.create_task(server.call("refusing", "ignore_cancel", 30.0))
        await client.remote(far.noop)
        async with asyncio.timeout(5):
            while True:
                async with server.session.delete("/call/refusing") as response:
                    if response.status == 204:
                        break
                await asyncio.sleep(0.01)
        assert isinstance(await asyncio.wait_for(running, 5), Value)


async def test_a_call_id_runs_once(shared: LocalRuntime) -> None:
    async with raw(shared) as server, shared.client() as client:
        before = await client.remote(far.count)
        ended = await asyncio.gather(*(server.call("twice", "count") for _ in range(5)))
        assert sum(isinstance(message, Value) for message in ended) == 1
        refused = await server.call("twice", "count")
        assert isinstance(refused, Failure)
        assert refused.type == "DuplicateCall"
        assert await client.remote(far.count) == before + 2


async def test_try_remote_gives_cancellation_inside_as_a_failure(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        result = await client.try_remote(far.afail, "cancelled")
        assert isinstance(getattr(result, "error", None), CallCancelled)
        assert isinstance(getattr(result, "error", None), RemoteCallError)


async def test_a_call_cancelled_before_it_began_is_answered(shared: LocalRuntime) -> None:
    async with raw(shared) as server, shared.client() as client:
        await client.remote(far.anoop)
        # While the loop is held, call and cancellation gather in the worker's socket.
        holding = asyncio.create_task(client.remote(far.hold_loop, 0.7))
        await asyncio.sleep(0.2)
        running = asyncio.create_task(server.call("unborn", "anoop"))
        async with asyncio.timeout(5):
            while True:
                async with server.session.delete("/call/unborn") as response:
                    if response.status == 204:
                        break
                await asyncio.sleep(0.01)
        message = await asyncio.wait_for(running, 5)
        assert isinstance(message, Failure)
        assert message.kind == "cancelled"
        await holding
