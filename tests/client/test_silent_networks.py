"""A network that swallows what is sent into it: nobody accepts, nobody refuses, nobody answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from left_over import nothing_left
from local_runtime import alone, far
from patience import eventually_async

from agentix import AsyncClientNamespace, RuntimeClient, RuntimeUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def swallowing() -> Iterator[str]:
    """Give the URL of an address that leaves every attempt to connect without an answer."""
    with contextlib.ExitStack() as open_:
        listener = open_.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        for number in range(10):
            filler = open_.enter_context(socket.socket())
            filler.settimeout(0.5)
            try:
                filler.connect(address)
            except TimeoutError:
                assert number
                break
        else:
            pytest.fail("its queue never gets full")
        yield f"http://127.0.0.1:{address[1]}"


def attempts(url: str) -> int:
    """Count the attempts to connect; one of them is the fixture's."""
    port = int(url.rpartition(":")[2])
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return sum(line[2].endswith(f":{port:04X}") and line[3] == "02" for line in lines)


def clients(url: str) -> Iterator[RuntimeClient]:
    """Make the kinds of clients there are, as to what they connect with first."""
    yield RuntimeClient(url, token="secret")
    yield RuntimeClient(url, token="secret", http_sync_ms=None)
    client = RuntimeClient(url, token="secret")
    client.register_namespace(AsyncClientNamespace("/plugin"))
    yield client


async def test_an_address_that_nobody_answers_at_is_a_definite_error_in_seconds(
    swallowing: str,
) -> None:
    async with contextlib.AsyncExitStack() as open_:
        calls = [
            (await open_.enter_async_context(client)).remote(far.noop)
            for client in clients(swallowing)
        ]
        start = time.monotonic()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert 3 < time.monotonic() - start < 10
        for error in found:
            assert isinstance(error, RuntimeUnreachable), error
            assert "it does not accept connections" in str(error)
        start = time.monotonic()
    assert time.monotonic() - start < 3


def test_closing_a_client_breaks_its_attempts_to_connect_off(swallowing: str) -> None:
    async def scenario() -> None:
        for client in clients(swallowing):
            call = asyncio.create_task(client.remote(far.noop))
            health = asyncio.create_task(client.health())
            await eventually_async(lambda: attempts(swallowing) == 4, "all are connecting")
            start = time.monotonic()
            await client.close()
            assert time.monotonic() - start < 2
            for task in (call, health):
                with pytest.raises(RuntimeUnreachable, match="the client was closed"):
                    await task

    with nothing_left():
        asyncio.run(scenario())


_GONE = """
import asyncio, fcntl, socket, struct, time
from agentix import RuntimeClient, RuntimeUnreachable
from local_runtime import LocalRuntime, far
from patience import eventually_async

async def main(runtime):
    def client(sync):
        return RuntimeClient(runtime.url, token=runtime.token, timeout=300, http_sync_ms=sync)

    def said():
        return "".join(file.read_text() for file in runtime.logs.glob("*"))  # if there are any

    async with client(300_000) as short, client(None) as far_away:
        calls = [one.try_remote(far.asleep, 250) for one in (short, far_away)]
        under_way = asyncio.gather(*calls)
        await eventually_async(lambda: far_away._events._asks, "one waits over Socket.IO")
        with socket.socket() as any_:
            fcntl.ioctl(any_, 0x8914, struct.pack("16sh14x", b"lo", 0))
        began = time.monotonic()
        for result in await under_way:
            assert isinstance(result.error, RuntimeUnreachable), result
        print("error", time.monotonic() - began < 40)
        began = time.monotonic()
    print("closed", time.monotonic() - began < 5)
    await eventually_async(lambda: "nothing was heard of a client" in said(), "it is noticed")

with LocalRuntime(tcp=True, settings="absent=1.0") as runtime:
    asyncio.run(main(runtime))
"""


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_a_machine_that_is_gone_is_noticed_on_either_side() -> None:
    ended = subprocess.run(alone(_GONE), capture_output=True, text=True, timeout=200)
    assert (ended.stdout, ended.stderr) == ("error True\nclosed True\n", "")
