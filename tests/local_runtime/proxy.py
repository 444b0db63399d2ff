"""A proxy between client and runtime, which breaks their connections when a test wants it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote

from agentix import RuntimeClient
from local_runtime import stop

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from local_runtime import LocalRuntime

Direction: TypeAlias = Literal["there", "back"]
"""From the client to the runtime, or from the runtime to the client."""

_PIECE = 64 << 10


class Proxy:
    """Passes bytes on, over a Unix socket or over TCP as the runtime has it.

    ``cut`` breaks all connections, at once or after so many more bytes; while ``refusing``, new
    ones are closed as soon as they are made; while ``holding``, nothing is passed on. A connection
    to nobody is closed, too, ``linger`` seconds after it was accepted.
    """

    def __init__(self, runtime: LocalRuntime) -> None:
        self._runtime = runtime
        self._folder = tempfile.TemporaryDirectory(prefix="agentix-")
        self._links: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cut: tuple[Direction, int, asyncio.Event] | None = None
        self._moving = asyncio.Event()
        self._moving.set()
        self.refusing = False
        self.linger = 0.0
        self.accepted = 0
        """How many connections there have been."""
        self.passed: dict[Direction, int] = {"there": 0, "back": 0}
        """How many bytes have been passed on."""

    async def __aenter__(self) -> Self:
        if self._runtime.tcp:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        else:
            path = Path(self._folder.name, "s")
            self._server = await asyncio.start_unix_server(self._accept, path)
            self.url = f"http+unix://{quote(str(path), safe='')}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await stop(self._server)
        self.cut()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)
        self._folder.cleanup()

    def client(self, **options: Any) -> RuntimeClient:
        """Make a client that reaches the runtime through this."""
        return RuntimeClient(self.url, token=self._runtime.token, **{"timeout": 60, **options})

    @property
    def holding(self) -> bool:
        """Whether nothing is passed on."""
        return not self._moving.is_set()

    @holding.setter
    def holding(self, value: bool) -> None:
        if value:
            self._moving.clear()
        else:
            self._moving.set()

    def cut(self) -> None:
        """Break all connections now."""
        for pair in self._links:
            for writer in pair:
                writer.transport.abort()

    def cut_after(self, direction: Direction, count: int) -> asyncio.Event:
        """Break all connections once so many more bytes have gone in this direction; tell when."""
        event = asyncio.Event()
        self._cut = direction, count, event
        return event

    async def _accept(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.accepted += 1
        if self.refusing:
            back.transport.abort()
            return
        try:
            if self._runtime.tcp:
                far, there = await asyncio.open_connection("127.0.0.1", self._runtime.port)
            else:
                far, there = await asyncio.open_unix_connection(self._runtime.socket)
        except OSError:
            try:
                await asyncio.sleep(self.linger)
            finally:
                back.transport.abort()
            return
        pair = back, there
        self._links.add(pair)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(near, there, "there"))
                both.create_task(self._pass(far, back, "back"))
        finally:
            self._links.discard(pair)
            for writer in pair:
                writer.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        try:
            while data := await reader.read(_PIECE):
                await self._moving.wait()
                if self._cut is not None and self._cut[0] == direction:
                    _, left, event = self._cut
                    if len(data) >= left:
                        self._cut = None
                        writer.write(data[:left])
                        await asyncio.sleep(0)  # what was passed on gets there before the end
                        self.cut()
                        event.set()
                        return
                    self._cut = direction, left - len(data), event
                self.passed[direction] += len(data)
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            writer.transport.abort()
