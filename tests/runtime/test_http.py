"""The server's HTTP: as much of it as a call needs, and nothing that could be read in two ways."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from local_runtime import LocalRuntime, descriptors
from local_runtime.by_hand import raw, take_apart
from local_runtime.stage import stage

from agentix.wire import arguments, messages
from agentix.wire.frames import body_prefix
from agentix.wire.messages import Await, Call
from agentix.wire.protocol import CONTENT_TYPE
from agentix_runtime.server.http import Server

if TYPE_CHECKING:
    from pathlib import Path


def request(runtime: LocalRuntime, call_id: str, *extra: str, close: bool = False) -> bytes:
    """Write a whole request for a call."""
    pickled = arguments.dump((call_id,), {})
    target = "local_runtime.far::noop"
    call = Call(call_id, target, "values", 1 << 20, 60_000, False, "", pickled.segments)
    body = body_prefix(messages.dump(call)) + b"".join(pickled.stream)
    lines = [
        "POST /rpc HTTP/1.1",
        f"authorization: Bearer {runtime.token}",
        f"CONTENT-TYPE:{CONTENT_TYPE}  ",
        f"Content-Length: {len(body)}",
        *extra,
        *(["Connection: close"] if close else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read an answer's status and body."""
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
        return int(head.split()[1]), await reader.readexactly(length)


async def exchange(runtime: LocalRuntime, *pieces: bytes) -> list[int]:
    """Send pieces, and read the statuses of all answers until the server closes."""
    reader, writer = await asyncio.open_unix_connection(str(runtime.socket))
    statuses = []
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        while True:
            statuses.append((await answer(reader))[0])
    except asyncio.IncompleteReadError:
        assert reader.at_eof()
    finally:
        writer.close()
        await writer.wait_closed()
    return statuses


async def test_a_request_may_arrive_in_any_pieces(shared: LocalRuntime) -> None:
    whole = request(shared, "pieces-1", close=True)
    assert await exchange(shared, *(bytes([byte]) for byte in whole)) == [200]
    cuts = [whole[at : at + 37] for at in range(0, len(whole), 37)]
    assert await exchange(shared, *cuts) == [200]


async def test_requests_in_one_piece_are_answered_one_after_the_other(
    shared: LocalRuntime,
) -> None:
    health = f"GET /health HTTP/1.1\r\nAuthorization: Bearer {shared.token}\r\n\r\n".encode()
    parts = [request(shared, "row-1"), health, request(shared, "row-2"), health]
    reader, writer = await asyncio.open_unix_connection(str(shared.socket))
    writer.write(b"".join(parts) + request(shared, "row-3", close=True))
    found = [await answer(reader) for _ in range(5)]
    assert [take_apart(found[n][1]).value() for n in (0, 2, 4)] == ["row-1", "row-2", "row-3"]
    assert [json.loads(found[n][1])["status"] for n in (1, 3)] == ["ok", "ok"]
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    "extra",
    [
        "Transfer-Encoding: chunked",
        "Content-Length: 5",
        "Content-Type : x",
        " folded: x",
        "no colon",
        ": no name",
        f"long: {'x' * 20_000}",
    ],
)
async def test_what_can_be_read_in_two_ways_is_refused(shared: LocalRuntime, extra: str) -> None:
    assert await exchange(shared, request(shared, "odd-1", extra), request(shared, "odd-2")) == [
        400
    ]
    async with raw(shared) as one:
        for call_id in ("odd-1", "odd-2"):
            assert (await one.ask(Await(call_id, 0))).failure().kind == "unknown"


@pytest.mark.parametrize(
    "line",
    ["GET / HTTP/1.0", "GET  / HTTP/1.1", "get / HTTP/1.1", "GET http://x/ HTTP/1.1", "", "\x00"],
)
async def test_what_is_no_request_is_refused(shared: LocalRuntime, line: str) -> None:
    assert await exchange(shared, f"{line}\r\nHost: x\r\n\r\n".encode()) == [400]


@pytest.mark.parametrize("length", ["-1", "+1", "1_0", "0x10", "1 1", "", "٣", "9" * 30])
async def test_a_length_that_is_none_is_refused(shared: LocalRuntime, length: str) -> None:
    head = f"POST /rpc HTTP/1.1\r\nContent-Length: {length}\r\n\r\n"
    assert await exchange(shared, head.encode()) == [400]


async def test_without_the_secret_nothing_of_a_body_is_taken(shared: LocalRuntime) -> None:
    before = shared.descriptors()
    head = f"POST /rpc HTTP/1.1\r\nContent-Length: {8 << 20}\r\n\r\n"
    assert await exchange(shared, head.encode(), bytes(100_000)) == [401]
    assert not [name for name in descriptors(shared.process.pid) if "memfd" in name]
    async with asyncio.timeout(10):
        while len(shared.descriptors()) > len(before):
            await asyncio.sleep(0.01)


async def test_who_does_not_say_the_secret_is_sent_away(tmp_path: Path) -> None:
    async with stage() as it:
        server = Server(it.calls, "the secret", lambda: None, stranger=0.3)
        path = str(tmp_path / "s")
        listener = await asyncio.get_running_loop().create_unix_server(server, path)
        silent, silent_writer = await asyncio.open_unix_connection(path)
        slow, slow_writer = await asyncio.open_unix_connection(path)
        slow_writer.write(b"GET /health HTTP/1.1\r\n")
        known, known_writer = await asyncio.open_unix_connection(path)
        ask = b"GET /health HTTP/1.1\r\nAuthorization: Bearer the secret\r\n\r\n"
        known_writer.write(ask)
        assert (await answer(known))[0] == 200
        async with asyncio.timeout(10):
            assert await silent.read() == await slow.read() == b""
        known_writer.write(ask)
        assert (await answer(known))[0] == 200
        server.close()
        listener.close()
        for writer in (silent_writer, slow_writer, known_writer):
            writer.close()
            await writer.wait_closed()


async def test_a_reader_that_takes_its_time_holds_nobody_up_and_may_leave_in_the_middle(
    shared: LocalRuntime,
) -> None:
    async with raw(shared) as slow, raw(shared) as other:
        call_id = await slow.begin("blob", 32 << 20)
        async with asyncio.timeout(20):
            while "memfd" not in str(descriptors(shared.process.pid)):
                await asyncio.sleep(0.01)
        for n in range(20):
            assert (await other.call("noop", n)).value() == n
        await slow.close()
        answer = await other.ask(Await(call_id, 60_000))
        assert len(answer.sections[0][1]) > 32 << 20
