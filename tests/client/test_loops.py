"""One client in several event loops, threads and processes, and one that nobody closes."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from local_runtime import LocalRuntime, descriptors, far, flows, plugin

from agentix import AsyncClientNamespace, CallTimeout, RuntimeClient, request_handler
from agentix.client.http import _Link
from agentix.client.link import _Socket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def runtime() -> Iterator[LocalRuntime]:
    with LocalRuntime() as made:
        yield made


@pytest.fixture
def name() -> str:
    return os.urandom(8).hex()


def in_child(work: Callable[[], object]) -> object:
    """Fork, and give what the child makes of it."""
    there, here = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            asyncio._set_running_loop(None)
            said = repr(work())
        except BaseException as exc:
            said = f"{type(exc).__name__}: {exc}"
        os.write(here, said.encode())
        os._exit(0)
    os.close(here)
    with os.fdopen(there, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said


async def noop(client: RuntimeClient, value: Any) -> Any:
    return await asyncio.wait_for(client.remote(far.noop, value), 20)


async def items(client: RuntimeClient) -> list[int]:
    return [item async for item in client.remote(flows.anumbers, 40)]


def test_a_client_goes_on_in_the_next_loop(runtime: LocalRuntime) -> None:
    for inline in (1000, None):
        client = RuntimeClient(runtime.url, token=runtime.token, http_sync_ms=inline)
        for number in range(3):
            assert asyncio.run(noop(client, number)) == number
            assert asyncio.run(items(client)) == [*range(40)]
            assert asyncio.run(client.health()).status == "ok"
        asyncio.run(client.close())
        with pytest.raises(RuntimeError, match="is closed"):
            asyncio.run(noop(client, 1))


def test_timeouts_hold_in_the_next_loop(runtime: LocalRuntime) -> None:
    client = RuntimeClient(runtime.url, token=runtime.token, timeout=0.5)
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(CallTimeout):
            asyncio.run(asyncio.wait_for(client.remote(far.asleep, 60), 20))
        assert time.monotonic() - began < 10
    asyncio.run(client.close())


def test_what_a_loop_left_running_ends_when_the_next_one_begins(
    runtime: LocalRuntime, name: str
) -> None:
    client = runtime.client()

    async def leave() -> None:
        call = client.remote(far.wait_and_tell, name)
        asyncio.ensure_future(call)  # noqa: RUF006
        async for _ in client.remote(flows.anumbers, 10**6, name, pause=0.01):
            if f"{name} began" in await client.remote(far.told):
                return

    async def ended() -> None:
        while f"{name} cancelled" not in await client.remote(far.told):
            await asyncio.sleep(0.01)
        while await client.remote(flows.how, name) != "closed":
            await asyncio.sleep(0.01)

    asyncio.run(leave())
    asyncio.run(asyncio.wait_for(ended(), 10))
    asyncio.run(client.close())


def test_records_go_on_in_the_next_loop(
    runtime: LocalRuntime, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.INFO)
    client = runtime.client()
    for number in range(3):
        asyncio.run(client.remote(far.write_stdout, f"{name} {number}\n".encode()))
    asyncio.run(client.close())
    said = [text for text in map(logging.LogRecord.getMessage, caplog.records) if name in text]
    assert said == [f"{name} {number}" for number in range(3)]


class Host(AsyncClientNamespace):
    def __init__(self) -> None:
        super().__init__("/plugin")

    @request_handler("add")
    async def add(self, data: list[int]) -> int:
        return sum(data)


def test_namespaces_go_on_in_the_next_loop(runtime: LocalRuntime) -> None:
    client = runtime.client()
    host = Host()
    client.register_namespace(host)

    async def both() -> None:
        async with asyncio.timeout(20):
            assert await client.remote(plugin.request, "add", [1, 2]) == 3
            assert await host.call("echo", "here") == "here"
            assert host.client.connected

    for _ in range(2):
        asyncio.run(both())
        # As the first thing in a loop, too.
        assert asyncio.run(asyncio.wait_for(host.call("echo", "there"), 20)) == "there"
    asyncio.run(client.close())


async def test_two_loops_at_once_are_refused(runtime: LocalRuntime) -> None:
    async with runtime.client() as client:
        assert await client.remote(far.noop, 1) == 1

        def elsewhere() -> None:
            for work in (noop(client, 2), items(client), client.health(), client.close()):
                with pytest.raises(RuntimeError, match="used in another event loop"):
                    asyncio.run(asyncio.wait_for(work, 20))

        await asyncio.to_thread(elsewhere)
        assert await client.remote(far.noop, 3) == 3


def test_a_forked_child_has_calls_of_its_own(runtime: LocalRuntime) -> None:
    client = runtime.client(timeout=20)
    child = in_child(lambda: asyncio.run(noop(client, "child")))
    assert asyncio.run(noop(client, "parent")) == "parent"
    assert child == "'child'"
    # A loop has come and gone.
    assert in_child(lambda: asyncio.run(items(client))) == repr([*range(40)])
    assert asyncio.run(noop(client, "parent")) == "parent"
    asyncio.run(client.close())


async def test_a_fork_amid_calls_leaves_them_alone(runtime: LocalRuntime) -> None:
    for inline in (1000, None):
        async with RuntimeClient(
            runtime.url, token=runtime.token, timeout=20, http_sync_ms=inline
        ) as client:
            await client.remote(far.noop)
            slow = asyncio.ensure_future(client.remote(far.asleep, 1.5))
            stream = client.remote(flows.anumbers, 200, pause=0.001)
            got = [await anext(stream)]

            def work() -> object:
                async def calls() -> object:
                    made = await asyncio.gather(*(noop(client, one) for one in range(20)))
                    await client.close()
                    return made

                return asyncio.run(calls())

            assert in_child(work) == repr([*range(20)])
            got += [item async for item in stream]
            assert got == [*range(200)]
            await slow
            assert await client.remote(far.noop, 2) == 2


async def closed() -> None:
    """Wait until all clients are closed, when nobody has them any more."""
    async with asyncio.timeout(20):
        while len(asyncio.all_tasks()) > 1:
            gc.collect()
            await asyncio.sleep(0.05)


async def test_clients_that_nobody_closes_are_closed(runtime: LocalRuntime) -> None:
    gc.collect()
    before = len(descriptors())
    for inline in (1000, None):
        for _ in range(10):
            client = RuntimeClient(runtime.url, token=runtime.token, http_sync_ms=inline)
            assert await client.remote(far.noop, 1) == 1
    del client
    await closed()
    assert len(descriptors()) <= before


async def test_a_stream_keeps_its_client(runtime: LocalRuntime) -> None:
    stream = runtime.client().remote(flows.anumbers, 200, pause=0.001)
    got = [await anext(stream)]
    gc.collect()
    got += [item async for item in stream]
    assert got == [*range(200)]
    del stream
    await closed()


def test_a_program_that_closes_nothing_ends_its_calls(runtime: LocalRuntime, name: str) -> None:
    async def leave() -> None:
        client = runtime.client()
        await client.remote(far.noop)
        await asyncio.wait_for(asyncio.shield(client.remote(far.wait_and_tell, name)), 0.2)

    async def ended() -> None:
        async with runtime.client() as client, asyncio.timeout(10):
            while f"{name} cancelled" not in await client.remote(far.told):
                await asyncio.sleep(0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(leave())
    asyncio.run(ended())


async def test_reading_ends_though_a_message_comes_at_the_same_time(
    runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RuntimeClient(runtime.url, token=runtime.token, http_sync_ms=None) as client:
        await client.remote(far.noop)
        assert client._events._uplink.link is not None
        reading = client._events._uplink.link._tasks[0]
        receive = _Socket.receive

        async def receive_and_cancel(self: _Socket, timeout: float | None = None) -> Any:
            message = await receive(self, timeout)
            if not reading.cancelling():
                reading.cancel()
            return message

        monkeypatch.setattr(_Socket, "receive", receive_and_cancel)
        for number in range(3):  # the first answer is awaited already
            assert await client.remote(far.noop, number) == number
        await asyncio.wait([reading], timeout=5)
        assert reading.cancelled()


async def test_a_loop_that_looks_at_the_memory_it_fills_receives_large_results(
    runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As uvloop does, while it tells of what it has received."""
    direct = 0
    update = _Link.buffer_updated

    def looking(self: _Link, nbytes: int) -> None:
        nonlocal direct
        direct += self._given is not self._scratch
        look = pickle.PickleBuffer(self._given)
        update(self, nbytes)
        look.release()

    monkeypatch.setattr(_Link, "buffer_updated", looking)
    size = 3 << 20
    async with runtime.client() as client:
        assert await client.remote(far.blob, size) == bytes(size)
        assert (await client.remote(np.ones, size)).sum() == size
        got = [len(item) async for item in client.remote(flows.blobs, [size, 1, size])]
    assert got == [size, 1, size]
    assert direct
