"""Nobody without the secret gets anything, and the secret is nowhere to be found."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from local_runtime import LocalRuntime, failing, far
from local_runtime.by_hand import journal

from agentix import RuntimeClient
from agentix.errors import RuntimeUnreachable
from agentix.wire.protocol import CONTENT_TYPE, PROTOCOL


async def ask(
    runtime: LocalRuntime, method: str, path: str, headers: dict[str, str], data: Any = None
) -> tuple[int, str]:
    """Make a request of one's own."""
    connector = aiohttp.UnixConnector(str(runtime.socket))
    async with (
        aiohttp.ClientSession("http://x", connector=connector) as session,
        session.request(method, path, headers=headers, data=data) as response,
    ):
        found = response.status, await response.text()
    await asyncio.sleep(0)
    return found


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", ["/health", "/rpc", "/rpc/x", "/", "/socket.io/", "/../etc"])
async def test_every_route_wants_the_secret(shared: LocalRuntime, method: str, path: str) -> None:
    bad = ["", "Bearer ", "Bearer wrong", f"bearer {shared.token}", f"Basic {shared.token}"]
    bad += [f"Bearer {shared.token}x", f"Bearer {shared.token[:-1]}", "Bearer \xff\xfe"]
    for value in bad:
        headers = {"Authorization": value} if value else {}
        status, text = await ask(shared, method, path, headers)
        assert status == 401
        assert shared.token not in text


async def test_unknown_routes_and_bad_bodies_are_refused(shared: LocalRuntime) -> None:
    good = {"Authorization": f"Bearer {shared.token}", "Content-Type": CONTENT_TYPE}
    assert (await ask(shared, "GET", "/nothing", good))[0] == 404
    assert (await ask(shared, "GET", "/rpc", good))[0] == 404
    assert (await ask(shared, "DELETE", "/rpc/none", good))[0] == 404
    for body in (
        b"",
        b"\x00",
        b"\xff" * 4,
        b"\xff\xff\xff\x7f",
        b"\x01\x00\x00\x00\xc0",
        b"x" * 99,
    ):
        assert (await ask(shared, "POST", "/rpc", good, body))[0] == 400, body
    huge = good | {"Content-Length": str(1 << 62)}
    assert (await ask(shared, "POST", "/rpc", huge, _nothing()))[0] == 413


async def _nothing() -> Any:
    yield b""


async def test_another_protocol_is_refused_with_both_versions(shared: LocalRuntime) -> None:
    other = {
        "Authorization": f"Bearer {shared.token}",
        "Content-Type": "application/vnd.agentix.v9",
    }
    status, text = await ask(shared, "POST", "/rpc", other, b"x")
    assert status == 426
    assert f'"protocol": {PROTOCOL}' in text


async def test_a_client_with_the_wrong_secret_is_told_so(shared: LocalRuntime) -> None:
    guess = "".join(["gue", "ss", "ed"])
    for token, said in ((None, "wants its sandbox's secret"), (guess, "another secret")):
        async with RuntimeClient(shared.url, token=token) as client:
            for call in (client.health(), client.remote(far.noop)):
                with pytest.raises(RuntimeUnreachable, match=said) as caught:
                    await call
                assert guess not in "".join(traceback.format_exception(caught.value))


async def test_the_secret_is_in_no_file_argument_environment_or_output(
    shared: LocalRuntime,
) -> None:
    async with shared.client() as client:
        await client.try_remote(failing.fail, "value")
        worker = await client.remote(far.process)
        found = await client.remote(far.environment)
    assert shared.token not in str(found)
    assert not (shared.folder / "token").exists()
    for pid in (worker, shared.process.pid):
        for name in ("cmdline", "environ"):
            assert shared.token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    assert shared.token not in shared.said()
    assert shared.token not in await journal(shared)


async def test_it_works_over_tcp_too() -> None:
    with LocalRuntime(tcp=True) as runtime:
        async with runtime.client() as client:
            assert await client.remote(far.noop, 1) == 1
            assert len(await client.remote(far.blob, 2 << 20)) == 2 << 20
        async with RuntimeClient(runtime.url, token="wrong-wrong-wrong") as client:
            with pytest.raises(RuntimeUnreachable, match="secret"):
                await client.remote(far.noop, 1)
