"""A server made by hand: it answers requests with whatever bytes a test wants, however wrong."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agentix import RuntimeClient
from agentix.wire import messages
from agentix.wire.frames import MARK, body_prefix
from agentix.wire.messages import Await, Call, Cancel, Failure, Follow, Leave, Next, Noted
from local_runtime import apart, stop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

REQUESTS = (Call, Await, Next, Cancel, Follow, Leave)


def unix(path: Path) -> str:
    """Make a URL of a socket's path."""
    return f"http+unix://{quote(str(path), safe='')}"


def body(*messages_: Any, payload: bytes = b"", mark: int = 0) -> bytes:
    """Put an answer together; the payload is the last message's."""
    return (
        MARK.pack(mark) + b"".join(body_prefix(messages.dump(one)) for one in messages_) + payload
    )


def http(answer: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    """Put a body's HTTP in front of it."""
    size = len(answer) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n\r\n".encode() + answer


class Connection:
    """One connection as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> Any:
        """Read the next request; ``None`` at the end, ``"health"`` for one that is no message."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            if length is None:
                return "health"
            data = await self.reader.readexactly(int(length[1]))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return messages.load(apart(data)[0], REQUESTS)

    async def send(self, data: bytes, size: int = 1 << 30) -> None:
        """Send bytes, in pieces of this size."""
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(data), size):
                self.writer.write(data[at : at + size])
                await self.writer.drain()
                await asyncio.sleep(0)

    async def ended(self) -> None:
        """Wait until the client has closed it."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(1 << 16):
                pass


@contextlib.asynccontextmanager
async def raw_server(
    folder: Path, serve: Callable[[Connection, Any], Awaitable[bool]], **options: Any
) -> AsyncIterator[RuntimeClient]:
    """Answer requests by ``serve(connection, request)``, and give a client of that.

    It tells whether the connection goes on. What clients ask for their own sake (the journal, a
    farewell) is answered without it.
    """
    tasks: set[asyncio.Task[Any]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        connection = Connection(reader, writer)
        try:
            while (request := await connection.request()) is not None:
                if isinstance(request, Follow):
                    await connection.ended()
                elif isinstance(request, Leave):
                    await connection.send(http(body(Noted())))
                elif not await serve(connection, request):
                    break
        except asyncio.CancelledError:
            pass  # the test is over; asyncio's streams would make an error of it
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_unix_server(accept, folder / "s")
    try:
        async with RuntimeClient(unix(folder / "s"), **{"timeout": 20, **options}) as client:
            yield client
    finally:
        await stop(server)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.sleep(0)


def unknown(request: Any) -> bytes:
    """Answer that there is no such call."""
    return http(body(Failure(request.id, "unknown", "UnknownCall", "no such call has arrived")))
