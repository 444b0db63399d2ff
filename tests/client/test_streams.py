"""Generator functions: items one by one, a few ahead, until the loop is left or they end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from local_runtime import LocalRuntime, failing, far, flows
from local_runtime.proxy import Proxy
from local_runtime.raw import Connection, body, http, raw_server

from agentix import CallTimeout, RemoteCallError, RuntimeClient, RuntimeUnreachable, WorkerExited
from agentix.wire.messages import Call, Cancel, Failure, Item, Next, Noted, Pending, Value
from agentix.wire.protocol import WINDOW

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

BOTH = pytest.mark.parametrize("generator", [flows.numbers, flows.anumbers])


@pytest.fixture(scope="module")
def runtime() -> Iterator[LocalRuntime]:
    with LocalRuntime() as made:
        yield made


@pytest.fixture
def name() -> str:
    return os.urandom(8).hex()


async def until(client: RuntimeClient, name: str, how: str) -> None:
    """Wait until the generator has ended like this."""
    async with asyncio.timeout(10):
        while await client.remote(flows.how, name) != how:
            await asyncio.sleep(0.01)


async def collect(
    stream: AsyncIterator[Any], seen: list[Any], then: Callable[[Any], Awaitable[Any]] | None = None
) -> None:
    """Take all items, and do something after each."""
    async for item in stream:
        seen.append(item)
        if then is not None:
            await then(item)


@BOTH
@pytest.mark.parametrize("sync", [1000, None])
@pytest.mark.parametrize("count", [0, 1, WINDOW, 1000])
async def test_all_items_come_in_order(
    runtime: LocalRuntime, generator: Any, sync: int | None, count: int, name: str
) -> None:
    async with RuntimeClient(runtime.url, token=runtime.token, http_sync_ms=sync) as client:
        assert [n async for n in client.remote(generator, count, name)] == list(range(count))
        await until(client, name, "end")


@BOTH
async def test_an_exception_comes_after_the_items_before_it(
    runtime: LocalRuntime, generator: Any, name: str
) -> None:
    async with runtime.client() as client:
        seen: list[int] = []
        with pytest.raises(RemoteCallError, match="after 40") as caught:
            await collect(client.remote(generator, 40, name, fail=True), seen)
        assert seen == list(range(40))
        assert caught.value.error.type.endswith("ValueError")
        assert "in numbers" in str(caught.value).replace("anumbers", "numbers")


@BOTH
async def test_leaving_the_loop_ends_the_generator(
    runtime: LocalRuntime, generator: Any, name: str
) -> None:
    async with runtime.client() as client:
        async for number in client.remote(generator, 1 << 40, name):
            if number == 100:
                break
        await until(client, name, "closed")
        async with contextlib.aclosing(client.remote(generator, 1 << 40, f"{name}-2")) as stream:
            assert await anext(stream) == 0
        await until(client, f"{name}-2", "closed")


@BOTH
async def test_cancelling_the_task_that_waits_ends_the_generator(
    runtime: LocalRuntime, generator: Any, name: str
) -> None:
    async with runtime.client() as client:
        got = asyncio.Event()

        async def use() -> None:
            async for _ in client.remote(generator, 1 << 40, name):
                got.set()
                await asyncio.sleep(3600)

        task = asyncio.create_task(use())
        await got.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(client, name, "closed")


@BOTH
async def test_no_more_is_made_than_a_few_items_ahead(
    runtime: LocalRuntime, generator: Any, name: str
) -> None:
    async with runtime.client() as client:
        stream = client.remote(generator, 1 << 40, name)
        for expected in range(200):
            assert await anext(stream) == expected
            if expected % 50 == 0:
                await asyncio.sleep(0.1)
                # What is being given out, and what was asked for ahead.
                made = await client.remote(flows.how_many, name)
                assert made <= expected + 2 * WINDOW
        for _ in range(50):
            assert await client.remote(flows.how_many, name) <= expected + 2 * WINDOW
        await stream.aclose()


@pytest.mark.parametrize("sync", [1000, None])
async def test_large_and_small_items_mix(runtime: LocalRuntime, sync: int | None) -> None:
    sizes = [0, 10, 3 << 20, 5, 300_000, 300_000, 1 << 20, 1, 2, 9 << 20, 0]
    async with RuntimeClient(runtime.url, token=runtime.token, http_sync_ms=sync) as client:
        number = 0
        async for item in client.remote(flows.blobs, sizes):
            assert item == bytes([number]) * sizes[number]
            number += 1
        assert number == len(sizes)


@pytest.mark.parametrize("sync", [1000, None])
async def test_cuts_at_random_lose_and_repeat_no_item(
    runtime: LocalRuntime, name: str, sync: int | None
) -> None:
    chance = random.Random(3)
    cuts = 0

    async def cut() -> None:
        nonlocal cuts
        while True:
            await asyncio.sleep(chance.uniform(0.005, 0.03))
            proxy.cut()
            cuts += 1

    async with Proxy(runtime) as proxy, proxy.client(http_sync_ms=sync) as client:
        cutting = asyncio.create_task(cut())
        stream = client.remote(flows.anumbers, 600, name, pause=0.002)
        assert [n async for n in stream] == list(range(600))
        sizes = [chance.choice([5, 200_000, 400_000]) for _ in range(60)]
        found = [len(item) async for item in client.remote(flows.blobs, sizes)]
        assert found == sizes
        cutting.cancel()
        await asyncio.wait([cutting])
    assert cuts > 20


@pytest.mark.parametrize("generator", [flows.slow, flows.blocking])
async def test_the_timeout_bounds_the_wait_for_each_item(
    runtime: LocalRuntime, generator: Any
) -> None:
    async with runtime.client(timeout=0.5) as client:
        seen: list[str] = []
        start = time.perf_counter()
        with pytest.raises(CallTimeout, match=r"no item within 0\.5 s"):
            # What the user does meanwhile does not count.
            await collect(client.remote(generator, 1.5), seen, lambda _: asyncio.sleep(0.3))
        assert seen == ["first"]
        assert time.perf_counter() - start < 1.4
    async with runtime.client(timeout=1) as client:
        assert [item async for item in client.remote(generator, 0.7)] == ["first", "second"]


async def test_a_worker_that_dies_fails_the_stream(runtime: LocalRuntime, name: str) -> None:
    async with runtime.client() as client:

        async def kill(number: int) -> None:
            if number == 20:
                await client.try_remote(failing.kill, 9)

        stream = client.remote(flows.anumbers, 1 << 40, name, pause=0.001)
        with pytest.raises(WorkerExited):
            await collect(stream, [], kill)
        assert [n async for n in client.remote(flows.numbers, 3)] == [0, 1, 2]


async def test_a_stream_that_nobody_begins_to_read_does_not_run(
    runtime: LocalRuntime, name: str
) -> None:
    async with runtime.client() as client:
        stream = client.remote(flows.numbers, 5, name)
        await client.remote(far.noop)
        assert await client.remote(flows.how_many, name) == 0
        await stream.aclose()


async def test_a_client_that_is_closed_fails_its_streams(runtime: LocalRuntime, name: str) -> None:
    async with runtime.client() as other:
        async with runtime.client() as client:
            stream = client.remote(flows.anumbers, 1 << 40, name, pause=0.1)
            assert await anext(stream) == 0
        with pytest.raises(RuntimeUnreachable, match="the client was closed"):
            await collect(stream, [])
        await until(other, name, "closed")


async def test_a_stream_cannot_be_tried_and_says_what_to_do() -> None:
    async with RuntimeClient("http://127.0.0.1:9") as client:
        for generator in (flows.numbers, flows.anumbers):
            with pytest.raises(TypeError, match="is a generator function; iterate over remote"):
                await client.try_remote(generator, 1)  # type: ignore[misc]


async def test_many_streams_and_calls_go_on_at_once(runtime: LocalRuntime, name: str) -> None:
    async with runtime.client() as client:

        async def use(number: int) -> None:
            generator: Any = (flows.numbers, flows.anumbers)[number % 2]
            stream = client.remote(generator, 200, f"{name}-{number}")
            assert [n async for n in stream] == list(range(200))
            assert await client.remote(far.noop, number) == number

        await asyncio.gather(*map(use, range(40)))


def one(call_id: str, number: int) -> Item:
    return Item(call_id, number, "values", "", (3,))


DOCUMENT = b"\x92\x90\x01"
WRONG: dict[str, Any] = {
    "an item that was not due": lambda i: body(one(i, 2), payload=DOCUMENT),
    "an item again": lambda i: body(one(i, 1), payload=DOCUMENT) + body(one(i, 1))[8:] + DOCUMENT,
    "an item of another call": lambda i: body(one("other", 1), payload=DOCUMENT),
    "an end with a value": lambda i: body(Value(i, "values", "", (3,)), payload=DOCUMENT),
    "an end before an item": lambda i: (
        body(Value(i, "values", "", (0,))) + body(one(i, 1))[8:] + DOCUMENT
    ),
    "a wait behind an item": lambda i: (
        body(one(i, 1), payload=DOCUMENT) + body(Pending(i))[8:]
    ),
    "a failure before an item": lambda i: (
        body(Failure(i, "raised", "T", "m")) + body(one(i, 1))[8:] + DOCUMENT
    ),
    "two ends": lambda i: body(Value(i, "values", "", (0,)), Value(i, "values", "", (0,))),
    "far too many items": lambda i: (
        body() + b"".join(body(one(i, n))[8:] + DOCUMENT for n in range(1, 2000))
    ),
    "thanks": lambda i: body(Noted()),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
async def test_a_stream_that_is_none_is_one_typed_error(tmp_path: Path, what: str) -> None:
    async def serve(connection: Connection, request: Any) -> bool:
        if isinstance(request, Cancel):
            await connection.send(http(body(Noted())))
        elif isinstance(request, Call):
            await connection.send(http(body(Pending(request.id))))
        elif isinstance(request, Next):
            await connection.send(http(WRONG[what](request.id)))
        return True

    async with raw_server(tmp_path, serve) as client:
        with pytest.raises(RemoteCallError) as caught:
            await collect(client.remote(flows.numbers, 1), [])
        assert caught.value.error.type == "MalformedResult"
