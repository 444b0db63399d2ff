"""Servers that speak HTTP wrongly: one typed error, in bounded time and memory, and no harm."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from local_runtime import far
from local_runtime.raw import Connection, body, http, raw_server, unknown

from agentix import CallTimeout, Failed, Ok
from agentix.wire.messages import Await, Call, Cancel, Item, Noted, Pending, Value
from agentix.wire.protocol import MAX_RESULT

ONE = b"\x92\x90\x01"
LENGTH = b"Content-Length: %d\r\n"


def good(call_id: str) -> bytes:
    """Make the body of a good answer: the value 1."""
    return body(Value(call_id, "values", "", (len(ONE),)), payload=ONE)


def head(*lines: bytes, status: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join((status, *lines, b"", b""))


WRONG: dict[str, Any] = {
    "no HTTP": lambda b: b"hello, who is there?\r\n\r\n" + b,
    "noise": lambda b: b"\xff\x00" * 20_000,
    "HTTP/1.0": lambda b: head(LENGTH[:-2] % len(b), status=b"HTTP/1.0 200 OK") + b,
    "HTTP/2": lambda b: head(LENGTH[:-2] % len(b), status=b"HTTP/2 200") + b,
    "a status of letters": lambda b: head(LENGTH[:-2] % len(b), status=b"HTTP/1.1 2OO OK") + b,
    "a status of four digits": lambda b: head(LENGTH[:-2] % len(b), status=b"HTTP/1.1 2000") + b,
    "no length": lambda b: head(b"Server: x") + b,
    "two lengths": lambda b: head(LENGTH[:-2] % len(b), LENGTH[:-2] % len(b)) + b,
    "two other lengths": lambda b: head(LENGTH[:-2] % len(b), b"content-length: 1") + b,
    "a list of lengths": lambda b: head(b"Content-Length: %d, %d" % (len(b), len(b))) + b,
    "a negative length": lambda b: head(b"Content-Length: -1") + b,
    "a signed length": lambda b: head(b"Content-Length: +%d" % len(b)) + b,
    "a length in hexadecimal": lambda b: head(b"Content-Length: 0x%x" % len(b)) + b,
    "a length with underscores": lambda b: head(b"Content-Length: 1_0") + b,
    "an endless length": lambda b: head(b"Content-Length: " + b"9" * 10_000) + b,
    "chunks": lambda b: (
        head(b"Transfer-Encoding: chunked") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(b), b)
    ),
    "chunks and a length": lambda b: (
        head(b"Transfer-Encoding: chunked", LENGTH[:-2] % len(b)) + b"%x\r\n%b\r\n" % (len(b), b)
    ),
    "an encoding of none": lambda b: head(b"transfer-encoding: identity", LENGTH[:-2] % len(b)) + b,
    "no colon": lambda b: head(b"Server", LENGTH[:-2] % len(b)) + b,
    "a name with a space": lambda b: head(b"Content-Length : %d" % len(b)) + b,
    "no name": lambda b: head(b": x", LENGTH[:-2] % len(b)) + b,
    "a folded line": lambda b: head(b"Server: x", b" y", LENGTH[:-2] % len(b)) + b,
    "a length in a folded line": lambda b: head(b"Content-Length:", b" %d" % len(b)) + b,
    "a zero byte": lambda b: head(b"Server: \x00", LENGTH[:-2] % len(b)) + b,
    "a carriage return": lambda b: head(b"Server: x\ry", LENGTH[:-2] % len(b)) + b,
    "a line feed": lambda b: head(b"Server: x\ny", LENGTH[:-2] % len(b)) + b,
    "a hundred thousand lines": lambda b: head(*[b"A: b"] * 100_000, LENGTH[:-2] % len(b)) + b,
    "an endless line": lambda b: head(b"A: " + b"b" * 1_000_000, LENGTH[:-2] % len(b)) + b,
    "an endless status": lambda b: b"HTTP/1.1 200 " + b"b" * 100_000,
    "a head that takes its time": lambda b: (head(b"A: " + b"b" * 20_000), 99),
    "a length of nothing": lambda b: http(b, length=0),
    "a length of too little": lambda b: http(b, length=len(b) - 1),
    "a length of too much": lambda b: http(b + b"\x00"),
    "a length of far too much": lambda b: http(b, length=1 << 40),
    "a message of a length of its own": lambda b: http(b[:8] + b"\xff\xff\xff\x7f" + b[12:]),
    "a message that is longer than all": lambda b: http(b[:8] + b"\xff\xff\x0f\x00" + b[12:]),
    "two answers in one": lambda b: http(b + b[8:]),
    "an item": lambda b: http(body(Item("c", 1, "values", "", (3,)), payload=ONE)),
    "a pending other": lambda b: http(body(Pending("other"))),
    "nothing but thanks": lambda b: http(body(Noted())),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_answer_is_one_typed_error_and_harms_no_other(
    tmp_path: Path, what: str
) -> None:
    async def serve(connection: Connection, request: Any) -> bool:
        if isinstance(request, Cancel):
            await connection.send(http(body(Noted())))
        elif isinstance(request, Call) and request.target.endswith("::noop"):
            wrong = WRONG[what](good(request.id))
            data, size = wrong if isinstance(wrong, tuple) else (wrong, 1 << 30)
            await connection.send(data, size)
            await connection.ended()
            return False
        else:
            await connection.send(http(good(request.id)))
        return True

    async with raw_server(tmp_path, serve) as client:
        start = time.perf_counter()
        assert await client.try_remote(far.anoop) == Ok(1)
        other = asyncio.create_task(client.try_remote(far.anoop))
        result = await client.try_remote(far.noop)
        assert isinstance(result, Failed), result
        assert result.error.error.type == "MalformedResult"
        assert "\n" not in str(result.error)
        assert await other == Ok(1)
        assert await client.try_remote(far.anoop) == Ok(1)
        assert time.perf_counter() - start < 5


@pytest.mark.parametrize("status", ["100 Continue", "101 Upgrade", "199 X", "204 No", "304 Same"])
async def test_a_status_without_a_body_is_told(tmp_path: Path, status: str) -> None:
    async def serve(connection: Connection, request: Any) -> bool:
        await connection.send(f"HTTP/1.1 {status}\r\n\r\n".encode() + http(good("x")))
        return True

    async with raw_server(tmp_path, serve) as client:
        for call in (client.try_remote(far.noop), client.try_remote(far.noop)):
            result = await call
            assert isinstance(result, Failed)
            assert f"HTTP {status[:3]}" in str(result.error)


@pytest.mark.parametrize("sent", [0, 1, 15, 17, 40, 50, 60])
async def test_an_answer_that_breaks_off_each_time_is_unreachable(
    tmp_path: Path, sent: int
) -> None:
    async def serve(connection: Connection, request: Any) -> bool:
        await connection.send(http(good(request.id))[:sent])
        return False

    async with raw_server(tmp_path, serve) as client:
        start = time.perf_counter()
        result = await client.try_remote(far.noop)
        assert isinstance(result, Failed)
        assert result.error.error.type == "RuntimeUnreachable"
        assert time.perf_counter() - start < 4


async def test_what_comes_without_being_asked_for_is_not_taken_for_an_answer(
    tmp_path: Path,
) -> None:
    async def serve(connection: Connection, request: Any) -> bool:
        # The second answer could be another call's, of which nobody knows yet.
        await connection.send(http(good(request.id)) + http(body(Pending(request.id))))
        return True

    async with raw_server(tmp_path, serve) as client:
        for _ in range(5):
            assert await client.remote(far.noop) == 1


async def test_an_answer_may_come_byte_by_byte(tmp_path: Path) -> None:
    async def serve(connection: Connection, request: Any) -> bool:
        await connection.send(http(good(request.id)), 1)
        return True

    async with raw_server(tmp_path, serve) as client:
        assert await client.remote(far.noop) == 1
        assert await client.remote(far.noop) == 1


async def test_memory_is_taken_by_what_arrives_and_not_by_what_is_announced(
    tmp_path: Path,
) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    highest = 0

    async def serve(connection: Connection, request: Any) -> bool:
        nonlocal highest
        if isinstance(request, Cancel):
            await connection.send(http(body(Noted())))
            return True
        for kinds in ("b", "a"):
            value = Value(request.id, "values", kinds, (3, MAX_RESULT - 64))
            start = body(value, payload=ONE)
            whole = len(start) + 61 + MAX_RESULT - 64
            await connection.send(http(start + bytes(1 << 20), length=whole))
            await asyncio.sleep(0.2)
            highest = max(highest, resident())
            break
        await connection.ended()
        return False

    before = resident()
    async with raw_server(tmp_path, serve, timeout=1) as client:
        with pytest.raises(CallTimeout):
            await client.remote(far.noop)
    assert highest - before < 64 << 20


async def test_a_cancelled_call_is_told_of_and_its_connection_not_used_again(
    tmp_path: Path,
) -> None:
    began = asyncio.Event()
    ended = asyncio.Event()
    told: asyncio.Queue[str] = asyncio.Queue()
    calls: list[str] = []

    async def serve(connection: Connection, request: Any) -> bool:
        if isinstance(request, Cancel):
            told.put_nowait(request.id)
            await connection.send(http(body(Noted())))
        elif isinstance(request, Call) and request.target.endswith("asleep"):
            calls.append(request.id)
            began.set()
            await connection.ended()
            ended.set()
            return False
        else:
            await connection.send(http(good(request.id)))
        return True

    async with raw_server(tmp_path, serve) as client:
        task = asyncio.create_task(client.remote(far.asleep, 9))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            await ended.wait()
            assert await told.get() == calls[0]
        assert await client.remote(far.noop) == 1


async def test_a_call_that_never_arrived_is_made_again_with_its_id(tmp_path: Path) -> None:
    seen: list[tuple[type, str]] = []

    async def serve(connection: Connection, request: Any) -> bool:
        seen.append((type(request), request.id))
        if len(seen) == 1:
            return False
        await connection.send(
            unknown(request) if isinstance(request, Await) else http(good(request.id))
        )
        return True

    async with raw_server(tmp_path, serve) as client:
        assert await client.remote(far.noop) == 1
    assert [kind for kind, _ in seen] == [Call, Await, Call]
    assert len({call_id for _, call_id in seen}) == 1


@pytest.mark.parametrize("answer", ["unknown to a call", "unknown after pending"])
async def test_a_call_is_not_made_again_where_it_may_have_run(tmp_path: Path, answer: str) -> None:
    calls = 0

    async def serve(connection: Connection, request: Any) -> bool:
        nonlocal calls
        calls += isinstance(request, Call)
        if isinstance(request, Call) and answer == "unknown after pending":
            await connection.send(http(body(Pending(request.id))))
        else:
            await connection.send(unknown(request))
        return True

    async with raw_server(tmp_path, serve) as client:
        result = await client.try_remote(far.noop)
        assert isinstance(result, Failed)
        assert result.error.error.type == "UnknownCall"
    assert calls == 1


async def test_a_server_that_only_ever_says_later_is_not_asked_without_pause(
    tmp_path: Path,
) -> None:
    asked = 0

    async def serve(connection: Connection, request: Any) -> bool:
        nonlocal asked
        asked += 1
        if request == "health":
            await connection.send(http(b"", status="404 None"))
        else:
            answer = Noted() if isinstance(request, Cancel) else Pending(request.id)
            await connection.send(http(body(answer)))
        return True

    async with raw_server(tmp_path, serve, timeout=1) as client:
        with pytest.raises(CallTimeout):
            await client.remote(far.noop)
    assert asked < 200  # without a pause it would be thousands
