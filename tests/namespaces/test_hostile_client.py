"""A client that says what no client says: its connection ends, and nobody else's does."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import msgpack
import pytest
from local_runtime import LocalRuntime, far
from local_runtime.by_hand import journal

from agentix.wire.packets import event_packet
from agentix.wire.protocol import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HELLO = event_packet("/rpc", "hello", "hostile", "", 0, ["/plugin"])


def packed(kind: int, namespace: str, data: Any = None, **more: Any) -> bytes:
    """Make a packet, or something like it."""
    made: bytes = msgpack.packb({"type": kind, "nsp": namespace, "data": data, **more})
    return made


@asynccontextmanager
async def connected(runtime: LocalRuntime) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """Connect two namespaces, by hand."""
    headers = {"Authorization": f"Bearer {runtime.token}", "Content-Type": CONTENT_TYPE}
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(runtime.socket))) as session,
        session.ws_connect(
            "http://r/socket.io/?EIO=4&transport=websocket", headers=headers
        ) as socket,
    ):
        await socket.receive()
        for namespace in ("/rpc", "/plugin"):
            await socket.send_bytes(packed(0, namespace))
            await socket.receive()
        yield socket


WRONG: dict[str, list[bytes | str]] = {
    "of no kind": [HELLO, event_packet("/rpc", "shout", 1)],
    "the library's own": [HELLO, event_packet("/rpc", "disconnect", "why")],
    "before the first word": [event_packet("/rpc", "got", 0)],
    "the first word twice": [HELLO, HELLO],
    "too few arguments": [HELLO, event_packet("/rpc", "reply")],
    "too many arguments": [HELLO, event_packet("/rpc", "bye", 1)],
    "an event without any": [HELLO, event_packet("/plugin", "note")],
    "a number that is a list": [HELLO, event_packet("/rpc", "arrived", [1])],
    "a number that is a text": [HELLO, event_packet("/rpc", "settle", "1")],
    "a request that is none": [HELLO, event_packet("/rpc", "ask", 1, b"?")],
    "a reply of other types": [HELLO, event_packet("/rpc", "reply", 1, "1", "", "", None, b"")],
    "an item out of its turn": [HELLO, event_packet("/plugin", "note", 7, 0, b"\xc0")],
    "an event of no namespace": [HELLO, event_packet("/other", "note", 1, 0, b"\xc0")],
    "a name of another type": [event_packet("/rpc", "hello", 1, "", 0, [])],
    "an acknowledgement": [HELLO, packed(3, "/rpc", [1], id=1)],
    "a refusal": [HELLO, packed(4, "/rpc", "no")],
    "a kind that there is not": [HELLO, packed(9, "/rpc")],
    "what is no packet": [HELLO, b"\xc1"],
    "a text": [HELLO, "4[]"],
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_its_connection_ends_and_the_journal_says_why(
    shared: LocalRuntime, wrong: list[bytes | str]
) -> None:
    text = "a client's connection was ended: "
    before = (await journal(shared)).count(text)
    async with connected(shared) as socket:
        for said in wrong:
            await (socket.send_str(said) if isinstance(said, str) else socket.send_bytes(said))
        async with asyncio.timeout(20):
            async for _ in socket:
                pass
    found = await journal(shared)
    assert found.count(text) == before + 1
    assert "the runtime failed" not in found
    async with shared.client() as client:
        assert await client.remote(far.anoop, 1) == 1


async def test_one_that_lies_about_what_it_has_is_not_forgotten_for_it(
    shared: LocalRuntime,
) -> None:
    async with connected(shared) as socket:
        await socket.send_bytes(event_packet("/rpc", "hello", "liar", "", 0, []))
        answer = msgpack.unpackb(await socket.receive_bytes(timeout=20))
        known = answer["data"][1]
    for seen, taken in ((7, False), (0, True)):
        async with connected(shared) as socket:
            await socket.send_bytes(event_packet("/rpc", "hello", "liar", known, seen, []))
            message = await socket.receive(timeout=20)
            assert (message.type is aiohttp.WSMsgType.BINARY) is taken
    assert msgpack.unpackb(message.data)["data"][1] == known
