"""A host with a namespace, a real runtime, and between them a wire that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from left_over import nothing_left
from local_runtime.fixtures import fresh, shared

from agentix.client import RuntimeClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from local_runtime import LocalRuntime

    from agentix.client.events import Events
    from agentix.sio import AsyncClientNamespace

__all__ = ["fresh", "shared"]


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compare what this process has with before."""
    for name in ("shared", "fresh"):
        if name in request.fixturenames:
            request.getfixturevalue(name)
    with nothing_left(threads=False):
        yield


class Host(RuntimeClient):
    """A client of a runtime, with namespaces registered."""

    def __init__(
        self, url: str, token: str, *namespaces: AsyncClientNamespace, **knobs: Any
    ) -> None:
        super().__init__(url, token=token, **({"timeout": 60} | knobs))
        for namespace in namespaces:
            self.register_namespace(namespace)

    @property
    def events(self) -> Events:
        """The client's Socket.IO side."""
        return self._events


class Wire:
    """A proxy before a runtime's socket, whose connections can be cut."""

    def __init__(self, runtime: LocalRuntime) -> None:
        self._runtime = runtime
        self._folder = tempfile.TemporaryDirectory(prefix="agentix-")
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.broken = False
        self.refused = 0
        self.connections = 0

    @property
    def url(self) -> str:
        """Where to connect to."""
        return f"http+unix://{quote(self._folder.name + '/w', safe='')}"

    async def __aenter__(self) -> Self:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        self._listener.bind(str(Path(self._folder.name) / "w"))
        self._listener.listen()
        asyncio.get_running_loop().add_reader(self._listener, self._accept)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        await self.cut()
        self._folder.cleanup()

    async def cut(self) -> None:
        """Break all connections."""
        pipes = set(self._pipes)
        while pipes:  # one may only just have come about
            for writer in self._writers:
                writer.transport.abort()
            _, pipes = await asyncio.wait(pipes, timeout=0.01)

    def _accept(self) -> None:
        # By hand: asyncio's server loses what it accepts in the turn in which it is closed.
        with contextlib.suppress(BlockingIOError):
            accepted, _ = self._listener.accept()
            task = asyncio.get_running_loop().create_task(self._carry(accepted))
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def _carry(self, accepted: socket.socket) -> None:
        if self.broken:
            self.refused += 1
            accepted.close()
            return
        self.connections += 1
        ends: set[asyncio.StreamWriter] = set()
        try:
            reader, writer = await asyncio.open_unix_connection(sock=accepted)
            ends.add(writer)
            far_reader, far_writer = await asyncio.open_unix_connection(str(self._runtime.socket))
            ends.add(far_writer)
            self._writers |= ends
            both = [
                asyncio.ensure_future(_pipe(reader, far_writer)),
                asyncio.ensure_future(_pipe(far_reader, writer)),
            ]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.transport.abort()
            await asyncio.wait(both)
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()
            await asyncio.sleep(0)  # in which they are closed


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        return


@pytest.fixture
def make_host() -> type[Host]:
    """Give what makes a host of a runtime."""
    return Host


@pytest.fixture
def make_wire() -> type[Wire]:
    """Give what makes a wire to a runtime."""
    return Wire
