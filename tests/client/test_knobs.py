"""How calls are made can be chosen, as long as nothing has been called."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from local_runtime import LocalRuntime, far, flows
from patience import eventually_async

from agentix import AsyncClientNamespace, RuntimeClient
from agentix.errors import ProviderError
from agentix.provider.base import Sandbox, SandboxId, SandboxInfo
from agentix.wire.messages import Call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOWHERE = "http://127.0.0.1:9"


class Host(AsyncClientNamespace):
    """Handles nothing."""


@pytest.fixture(scope="module")
def runtime() -> Iterator[LocalRuntime]:
    with LocalRuntime() as made:
        yield made


@pytest.mark.parametrize("value", [-1, 1.5, True, "1", 3_600_001, float("nan")])
async def test_an_inline_budget_is_a_number_of_milliseconds(value: Any) -> None:
    with pytest.raises(ValueError, match=r"http_sync_ms is .*; it has to be"):
        RuntimeClient(NOWHERE, http_sync_ms=value)
    with pytest.raises(ValueError, match="http_sync_ms"):
        sandbox(NOWHERE).configure(http_sync_ms=value)


@pytest.mark.parametrize("token", ["a\r\nb", "a\x00b", "\x7f"])
async def test_a_secret_cannot_bring_headers_of_its_own(token: str) -> None:
    with pytest.raises(ValueError, match="no secret has") as caught:
        RuntimeClient(NOWHERE, token=token)
    assert token not in str(caught.value)


def sandbox(url: str, token: str | None = None) -> Sandbox:
    return Sandbox(SandboxInfo(SandboxId("s-1"), url, "running"), token=token)


async def test_namespaces_are_registered_before_a_client_is_entered() -> None:
    client = RuntimeClient(NOWHERE)
    client.register_namespace(Host("/plugin"))
    async with client:
        with pytest.raises(RuntimeError, match="before `async with` and before the first call"):
            client.register_namespace(Host("/other"))


async def test_namespaces_are_registered_before_the_first_call() -> None:
    client = RuntimeClient(NOWHERE)
    await client.try_remote(far.noop)
    with pytest.raises(RuntimeError, match="Host: the client is in use already"):
        client.register_namespace(Host("/plugin"))
    await client.close()


async def test_a_sandbox_is_configured_before_its_first_call(runtime: LocalRuntime) -> None:
    async with sandbox(runtime.url, runtime.token) as live:
        live.register_namespace(Host("/plugin"))
        live.configure(timeout=17)
        live.configure(http_sync_ms=5)
        live.configure(timeout=18)
        assert await live.remote(far.noop, 1) == 1
        assert live._client is not None
        assert (live._client._deadlines.seconds, live._client._wait) == (18, 5)
        with pytest.raises(ProviderError, match=r"register_namespace\(Host\) works before the"):
            live.register_namespace(Host("/other"))
        with pytest.raises(ProviderError, match=r"configure\(…\) works before the first call"):
            live.configure(timeout=1)
        assert [n async for n in live.remote(flows.numbers, 3)] == [0, 1, 2]
        with pytest.raises(TypeError, match="generator function"):
            await live.try_remote(flows.numbers, 3)  # type: ignore[misc]


async def test_without_an_inline_budget_calls_go_over_socket_io(runtime: LocalRuntime) -> None:
    async with RuntimeClient(runtime.url, token=runtime.token, http_sync_ms=None) as client:
        asked: list[Any] = []
        ask = client._connection.ask

        async def noting(request: Any, *args: Any, **options: Any) -> Any:
            asked.append(request)
            return await ask(request, *args, **options)

        client._connection.ask = noting  # type: ignore[method-assign]
        assert await client.remote(far.noop, 1) == 1
        assert [n async for n in client.remote(flows.numbers, 30)] == [*range(30)]
        assert not [request for request in asked if isinstance(request, Call)]
        # What would hold up the events goes by HTTP all the same.
        assert await client.remote(far.length, bytes(1 << 20)) == 1 << 20
        assert len([request for request in asked if isinstance(request, Call)]) == 1
        assert len(await client.remote(far.blob, 1 << 20)) == 1 << 20


async def test_calls_that_take_long_wait_on_one_connection(
    runtime: LocalRuntime, tmp_path: Path
) -> None:
    async with RuntimeClient(runtime.url, token=runtime.token, http_sync_ms=50) as client:
        await client.remote(far.asleep, 2.5)  # by then there is one
        go = tmp_path / "go"
        calls = asyncio.gather(*(client.remote(far.until, str(go)) for _ in range(100)))
        await eventually_async(lambda: len(client._events._asks) == 100, "all wait over Socket.IO")
        busy = len(client._connection._pool._links) - len(client._connection._pool._idle)
        assert busy <= 1  # the journal's
        go.touch()
        await calls


def test_ordinary_calls_load_neither_aiohttp_nor_socket_io(runtime: LocalRuntime) -> None:
    program = """
import asyncio, os, sys
from agentix import RuntimeClient

async def main():
    async with RuntimeClient(sys.argv[1], token=sys.argv[2]) as client:
        await client.health()
        await client.remote(os.getpid)

asyncio.run(main())
print(*sorted({"aiohttp", "cloudpickle", "numpy", "pydantic", "socketio"} & {*sys.modules}))
"""
    command = [sys.executable, "-c", program, runtime.url, runtime.token]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "\n"
