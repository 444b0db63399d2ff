"""A sandbox can write to the folder of its own socket; the host must not go where that leads."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from aiohttp import web
from left_over import nothing_left

from agentix import RuntimeClient
from agentix.errors import RuntimeUnreachable
from agentix.wire.protocol import PROTOCOL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a place whose path is short enough for sockets."""
    with nothing_left(), tempfile.TemporaryDirectory(prefix="ax") as place:
        yield Path(place)


@contextlib.asynccontextmanager
async def listening(path: Path, heard: list[str]) -> AsyncIterator[None]:
    """Answer as a runtime does at *path*, and note what was asked."""

    async def handle(request: web.BaseRequest) -> web.Response:
        heard.append(request.path)
        facts = {"status": "ok", "protocol": PROTOCOL, "agentix": "0", "python": "3", "libc": "-"}
        response = web.json_response(facts | {"pid": 1, "worker": {"pid": None}})
        response.force_close()  # so that every request makes a connection of its own
        return response

    runner = web.ServerRunner(web.Server(handle, access_log=None))
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    try:
        yield
    finally:
        await runner.cleanup()


def client_of(path: Path) -> RuntimeClient:
    return RuntimeClient(f"http+unix://{quote(str(path), safe='')}", timeout=5, token="t" * 32)


async def test_a_link_to_another_socket_is_not_followed(folder: Path) -> None:
    heard: list[str] = []
    async with listening(folder / "engine", heard):
        (folder / "s").symlink_to(folder / "engine")
        async with client_of(folder / "s") as client:
            with pytest.raises(RuntimeUnreachable):
                await client.health()
            with pytest.raises(RuntimeUnreachable):
                await client.remote(os.getpid)
    assert heard == []


async def test_a_socket_that_is_replaced_later_is_still_the_one_that_is_used(folder: Path) -> None:
    heard: list[str] = []
    others: list[str] = []
    async with (
        listening(folder / "s", heard),
        listening(folder / "engine", others),
        client_of(folder / "s") as client,
    ):
        await client.health()
        (folder / "s").rename(folder / "away")
        (folder / "s").symlink_to(folder / "engine")
        await client.health()
    assert heard == ["/health", "/health"]
    assert others == []


async def test_what_is_no_socket_is_said_to_be_none(folder: Path) -> None:
    (folder / "s").touch()
    async with client_of(folder / "s") as client:
        with pytest.raises(RuntimeUnreachable, match="not a socket"):
            await client.health()
