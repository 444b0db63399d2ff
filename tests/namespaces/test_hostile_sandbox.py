"""A sandbox that sends whatever it likes: one error of a known class, soon, and nothing hangs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import resource
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgpack
import pytest
from aiohttp import WSMsgType, web

from agentix.client.connection import Connection, ConnectionLost
from agentix.client.events import Events
from agentix.client.url import RuntimeURL
from agentix.errors import RuntimeUnreachable
from agentix.sio import AsyncClientNamespace
from agentix.wire import plain
from agentix.wire.errors import MalformedError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for such a sandbox to take its leave."""
    monkeypatch.setattr("agentix.client.events._FAREWELL", 0.05)
    monkeypatch.setattr("agentix.client.link._FAREWELL", 0.05)


def packet(kind: Any, namespace: Any, data: Any = None, **more: Any) -> bytes:
    """Make a packet, or something like it."""
    made: bytes = msgpack.packb({"type": kind, "nsp": namespace, "data": data, **more})
    return made


class Sandbox:
    """Connects a client as a runtime does, then sends what it is given to send."""

    def __init__(self, path: Path) -> None:
        self.url = RuntimeURL.parse(f"http+unix://{quote(str(path), safe='')}")
        self._path = path
        self.opening = "0" + json.dumps(
            {"sid": "s", "upgrades": [], "pingTimeout": 20000, "pingInterval": 25000}
        )
        self.frames: list[bytes | str] = []
        self.connections = 0
        self.speaks_up = True

    async def __aenter__(self) -> Sandbox:
        self._server = web.Server(self._handle)
        self._runner = web.ServerRunner(self._server)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self._path)).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.connections += 1
        ws = web.WebSocketResponse(max_msg_size=0)
        await ws.prepare(request)
        await ws.send_str(self.opening)
        with contextlib.suppress(ConnectionError):
            async for message in ws:
                if message.type is WSMsgType.BINARY:
                    await self._take(ws, msgpack.unpackb(message.data))
        return ws

    async def _take(self, ws: web.WebSocketResponse, said: dict[str, Any]) -> None:
        if said["type"] == 0:
            await ws.send_bytes(packet(0, said["nsp"], {"sid": "x"}))
        elif said["type"] == 2 and said["data"][0] == "hello" and self.speaks_up:
            await ws.send_bytes(packet(2, "/rpc", ["hello", "guest", 0]))
            await asyncio.sleep(0.05)
            for frame in self.frames:
                await (ws.send_str(frame) if isinstance(frame, str) else ws.send_bytes(frame))


class Host(AsyncClientNamespace):
    """Counts its events."""

    def __init__(self) -> None:
        super().__init__("/x")
        self.events: list[Any] = []

    async def on_event(self, data: Any) -> None:
        self.events.append(data)

    async def on_slow(self, data: Any) -> None:
        await asyncio.sleep(3600)


@contextlib.asynccontextmanager
async def _host(sandbox: Sandbox) -> Any:
    connection = Connection(sandbox.url, "secret")
    events = Events(sandbox.url, "secret", "host", connection)
    ns = Host()
    events.register(ns)
    try:
        yield events, ns
    finally:
        await events.close()
        await connection.close()


def _event(*arguments: Any, name: Any = "event", namespace: Any = "/x") -> bytes:
    return packet(2, namespace, [name, *arguments])


_NONE = plain.dump(None)
HOSTILE: dict[str, list[bytes | str]] = {
    "no packet": [b"\xc1"],
    "an empty one": [b""],
    "text": ['42["event",1]'],
    "long text": ["4" + "[" * 1_000_000],
    "an endless opening": ["0" + "[" * 1_000_000],
    "a base64 message": ["bAAAA"],
    "an unknown engine packet": ["9"],
    "an unknown packet": [packet(7, "/x", [])],
    "a binary event": [packet(5, "/x", ["event", 1])],
    "deep nesting": [b"\x91" * 10_000_000],
    "arrays that lie": [b"\xdd\x7f\xff\xff\xff" * 1_000_000],
    "many elements": [packet(2, "/x", ["event", *range(5000)])],
    "an event without a name": [packet(2, "/x", [])],
    "an event in no namespace": [packet(2, None, ["event"])],
    "an event in another namespace": [_event(1, 0, _NONE, namespace="/y")],
    "an event with too little": [_event(1, 0)],
    "an event with too much": [_event(1, 0, _NONE, 5)],
    "an event of other types": [_event("1", 0, _NONE)],
    "an event with text for data": [_event(1, 0, "data")],
    "an event with data that are none": [_event(1, 0, b"\xc1")],
    "an event out of turn": [_event(5, 0, _NONE)],
    "an event with number 0": [_event(0, 0, _NONE)],
    "a negative request": [_event(1, -1, _NONE)],
    "connect as an event": [_event(1, 0, _NONE, name="connect")],
    "disconnect as an event": [_event(1, 0, _NONE, name="disconnect")],
    "an event of our own": [packet(2, "/rpc", ["nonsense", 1])],
    "a reply that is none": [packet(2, "/rpc", ["reply", 1, 2, 3])],
    "a reply with a status that is none": [packet(2, "/rpc", ["reply", 1, 1, "E", "", "429", b""])],
    "an answer that is none": [packet(2, "/rpc", ["answer", "1", b""])],
    "a second hello": [packet(2, "/rpc", ["hello", "guest", 0])],
    "items taken that were never sent": [packet(2, "/rpc", ["got", 9])],
    "items taken below none": [packet(2, "/rpc", ["got", -9])],
    "a namespace that is refused": [packet(4, "/x", "no")],
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_not_valid_ends_the_connection_in_one_error(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Sandbox(tmp_path / "s") as sandbox, _host(sandbox) as (events, ns):
        sandbox.frames = HOSTILE[name]
        began = time.monotonic()
        call = asyncio.create_task(ns.call("echo", timeout=30))
        with pytest.raises(MalformedError) as caught:
            await events.ask(b"request")
        assert "\n" not in str(caught.value)
        with pytest.raises(RuntimeUnreachable, match="not valid"):
            await call
        assert time.monotonic() - began < 5
        assert ns.events == []
        # It is not asked again by itself, but can be; and then all is well.
        assert sandbox.connections == 1
        sandbox.frames = [_event(1, 0, plain.dump(7)), _event(2, 0, plain.dump(8))]
        await events.ready("test")
        async with asyncio.timeout(10):
            while ns.events[-1:] != [8]:
                await asyncio.sleep(0.005)
        assert sandbox.connections == 2
    ended = [r for r in caplog.records if "have ended" in r.getMessage()]
    assert len(ended) == 1


@pytest.mark.parametrize(
    "opening",
    [
        "0",
        "0{}",
        "0[]",
        "0" + "[" * 3000,
        '0{"sid":1}',
        '0{"sid":"s","upgrades":[],"pingTimeout":"x","pingInterval":1}',
        '0{"sid":"s","upgrades":[],"pingTimeout":1e999,"pingInterval":1}',
        "3",
        "40",
        "",
        "0" + "x" * 1_000_000,
    ],
)
async def test_an_opening_that_is_none_is_a_definite_error(tmp_path: Path, opening: str) -> None:
    async with Sandbox(tmp_path / "s") as sandbox, _host(sandbox) as (events, _):
        sandbox.opening = opening
        began = time.monotonic()
        with pytest.raises(RuntimeUnreachable):
            await events.ready("test")
        assert time.monotonic() - began < 5


async def test_the_other_sides_idea_of_pings_changes_nothing(tmp_path: Path) -> None:
    async with Sandbox(tmp_path / "s") as sandbox, _host(sandbox) as (events, ns):
        sandbox.opening = '0{"sid":"s","upgrades":[],"pingTimeout":-90000,"pingInterval":-90000}'
        sandbox.frames = [_event(1, 0, _NONE)]
        await events.ready("test")
        async with asyncio.timeout(10):
            while len(ns.events) != 1:
                await asyncio.sleep(0.005)


async def test_more_events_than_may_be_sent_unasked_end_the_connection(tmp_path: Path) -> None:
    async with Sandbox(tmp_path / "s") as sandbox, _host(sandbox) as (events, _):
        sandbox.frames = [_event(n, 0, _NONE, name="slow") for n in range(1, 5000)]
        with pytest.raises(MalformedError, match="more events"):
            await events.ask(b"request")


async def test_a_flood_of_large_events_takes_bounded_memory(tmp_path: Path) -> None:
    async with Sandbox(tmp_path / "s") as sandbox, _host(sandbox) as (events, _):
        data = plain.dump(bytes(16 << 20))
        sandbox.frames = [_event(n, 0, data, name="slow") for n in range(1, 40)]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(MalformedError, match="more events"):
            await events.ask(b"request")
        # The frames above are this process's, too.
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 << 20


async def test_a_message_over_the_cap_ends_the_connection(tmp_path: Path) -> None:
    async with Sandbox(tmp_path / "s") as sandbox, _host(sandbox) as (events, _):
        sandbox.frames = [bytes(66 << 20)]
        with pytest.raises(MalformedError, match=r"too big|exceeds|size"):
            await events.ask(b"request")


async def test_random_frames_never_hang_the_host(tmp_path: Path) -> None:
    dice = random.Random(11)
    good = [
        _event(1, 0, _NONE),
        _event(1, 7, plain.dump([1, {"a": b"b"}])),
        packet(2, "/rpc", ["reply", 1, 1, "", "", None, _NONE]),
        packet(2, "/rpc", ["answer", 1, b"x"]),
        packet(3, "/x", [1], id=4),
    ]
    for number in range(60):
        frames: list[bytes | str] = []
        for _ in range(20):
            frame = bytearray(dice.choice(good))
            for _ in range(dice.randrange(4)):
                frame[dice.randrange(len(frame))] = dice.randrange(256)
            frames.append(bytes(frame))
        path = tmp_path / f"s{number}"
        async with Sandbox(path) as sandbox, _host(sandbox) as (events, _):
            sandbox.frames = [*frames, b"\xc1"]
            with pytest.raises((MalformedError, ConnectionLost)):
                await asyncio.wait_for(_asks(events), 20)


async def _asks(events: Events) -> None:
    for _ in range(3):
        await events.ask(b"request")


async def test_a_runtime_that_never_says_hello_is_a_definite_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentix.client.uplink._HELLO", 0.2)
    async with Sandbox(tmp_path / "s") as sandbox, _host(sandbox) as (events, _):
        sandbox.speaks_up = False
        with pytest.raises(RuntimeUnreachable, match="does not answer"):
            await events.ready("test")
