"""Requests to a runtime without the client: each by hand, over one connection or several."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentix.wire import arguments, messages, records
from agentix.wire.frames import MARK, PREFIX, body_prefix, payload_size, pieces
from agentix.wire.messages import (
    Call,
    Failure,
    Follow,
    Item,
    Leave,
    Message,
    Noted,
    Pending,
    Records,
    Value,
)
from agentix.wire.protocol import CONTENT_TYPE
from agentix.wire.values.decode import decode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from local_runtime import LocalRuntime

_ANSWERS = (Value, Failure, Item, Pending, Records, Noted)


@dataclass
class Answer:
    """An answer, taken apart."""

    mark: int
    sections: list[tuple[Message, bytes]]

    @property
    def message(self) -> Message:
        """The message of the only section."""
        ((message, _),) = self.sections
        return message

    def value(self) -> Any:
        """The value of the only section."""
        ((message, payload),) = self.sections
        assert isinstance(message, Value | Item), message
        assert len(message.segments) == 1
        return decode(memoryview(payload), [], dict)

    def failure(self) -> Failure:
        """The failure that is the only section."""
        message = self.message
        assert isinstance(message, Failure), message
        return message


def take_apart(body: bytes) -> Answer:
    """Read an answer's body."""
    (mark,) = MARK.unpack_from(body)
    at, sections = MARK.size, []
    while at < len(body):
        (size,) = PREFIX.unpack_from(body, at)
        at += PREFIX.size
        message = messages.load(body[at : at + size], _ANSWERS)
        at += size
        length = payload_size(getattr(message, "segments", (0,)))
        sections.append((message, body[at : at + length]))
        at += length
    assert at == len(body)
    return Answer(mark, sections)


class Raw:
    """One connection, and a client's name."""

    def __init__(
        self,
        runtime: LocalRuntime,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        name: str,
    ) -> None:
        self._reader, self._writer = streams
        self._head = (
            f"POST /rpc HTTP/1.1\r\nHost: r\r\nAuthorization: Bearer {runtime.token}\r\n"
            f"Content-Type: {CONTENT_TYPE}\r\nContent-Length: "
        )
        self._numbers = itertools.count(1)
        self.name = name

    def id(self) -> str:
        """Make up a call's id."""
        return f"{self.name}-{next(self._numbers)}"

    async def send(self, message: Message, payload: bytes = b"") -> None:
        """Send a request."""
        body = body_prefix(messages.dump(message)) + payload
        self._writer.write(f"{self._head}{len(body)}\r\n\r\n".encode() + body)
        await self._writer.drain()

    async def receive(self) -> Answer:
        """Read an answer."""
        return take_apart(await self._read())

    async def _read(self) -> bytes:
        async with asyncio.timeout(60):
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
            body = await self._reader.readexactly(length)
        assert head.startswith(b"HTTP/1.1 200 "), (head, body)
        return body

    async def ask(self, message: Message, payload: bytes = b"") -> Answer:
        """Send a request and read its answer."""
        await self.send(message, payload)
        return await self.receive()

    async def begin(
        self,
        name: str,
        *args: Any,
        call_id: str = "",
        wait: int = 60_000,
        stream: bool = False,
        limit: int = 1 << 30,
    ) -> str:
        """Send a call of a function in :mod:`local_runtime.far`, without reading the answer."""
        call_id = call_id or self.id()
        pickled = arguments.dump(args, {})
        target = f"local_runtime.far::{name}"
        call = Call(call_id, target, "values", limit, wait, stream, "", pickled.segments)
        await self.send(call, b"".join(pieces(pickled.stream, pickled.buffers)))
        return call_id

    async def call(self, name: str, *args: Any, **options: Any) -> Answer:
        """Call a function in :mod:`local_runtime.far`."""
        await self.begin(name, *args, **options)
        return await self.receive()

    async def worker(self) -> int:
        """Ask which process new calls go to."""
        rest = self._head.partition("\r\n")[2]
        rest = rest.rpartition("Content-Type")[0]
        self._writer.write(f"GET /health HTTP/1.1\r\n{rest}\r\n".encode())
        about = json.loads(await self._read())
        return int(about["worker"]["pid"] or 0)

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def connect(runtime: LocalRuntime, name: str | None = None) -> Raw:
    """Open a connection."""
    if runtime.tcp:
        streams = await asyncio.open_connection("127.0.0.1", runtime.port, limit=1 << 30)
    else:
        streams = await asyncio.open_unix_connection(str(runtime.socket), limit=1 << 30)
    return Raw(runtime, streams, name or os.urandom(8).hex())


@contextlib.asynccontextmanager
async def raw(runtime: LocalRuntime, name: str | None = None) -> AsyncIterator[Raw]:
    """Have a connection, and leave nothing of its client in the end."""
    connection = await connect(runtime, name)
    try:
        yield connection
    finally:
        await connection.close()
        if runtime.process.poll() is None:
            last = await connect(runtime)
            await last.ask(Leave(connection.name))
            await last.close()


async def journal(runtime: LocalRuntime, until: str = "") -> str:
    """Read all that a runtime's journal holds, once it holds this text, for a bounded time."""
    async with raw(runtime) as one, asyncio.timeout(20):
        begin = (await one.ask(Follow(one.name, "", 0, 0))).message
        assert isinstance(begin, Records)
        last, text = begin.first - 1, ""
        while True:
            answer = await one.ask(Follow(one.name, begin.journal, last, 100))
            ((message, payload),) = answer.sections
            assert isinstance(message, Records)
            text += "".join(f"{entry}\n" for entry in records.load_all(payload, message.count))
            last = message.first + message.count - 1
            if not message.count and until in text:
                return text
