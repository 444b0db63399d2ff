"""One function a reader of hostile bytes: it raises if reading them ends as it must not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

from agentix.client.answers import Answer, Expected
from agentix.client.http import _Link
from agentix.wire import messages, plain, records
from agentix.wire.errors import MalformedError, NotAllowedError, UnencodableError
from agentix.wire.messages import Failure, Item, Message, Noted, Pending, Records, Value
from agentix.wire.packets import StrictPacket
from agentix.wire.values.allowed import allowed_for
from agentix.wire.values.decode import decode
from agentix.wire.values.encode import encode
from agentix_runtime.channel import Channel
from agentix_runtime.parcel import Parcel
from fuzz.project import known

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentix.wire.frames import Buffer

EVERY: tuple[type[Message], ...] = tuple(cls for cls, _ in messages._CHECKS.values())
ANSWERS = Expected((Value, Failure, Pending, Item, Records, Noted), 1 << 20, 64)


def split(data: bytes) -> tuple[bytes, list[Buffer]]:
    """Take an input of the target ``values`` apart: how many bytes each buffer at its end has."""
    count, data = data[0] % 4 if data else 0, data[1:]
    sizes = [int.from_bytes(data[2 * n : 2 * n + 2], "little") for n in range(count)]
    data = data[2 * count :]
    buffers: list[Buffer] = []
    for number, size in enumerate(sizes):
        piece, data = data[len(data) - min(size, len(data)) :], data[: max(0, len(data) - size)]
        buffers.append(piece if number % 2 else bytearray(piece))
    return data, buffers


def joined(document: bytes, buffers: Sequence[Buffer]) -> bytes:
    """Make such an input."""
    sizes = b"".join(len(one).to_bytes(2, "little") for one in buffers)
    return b"".join([bytes([len(buffers)]), sizes, document, *reversed(buffers)])


def values(data: bytes) -> None:
    """Decode a result: what comes out is a value of the data model, and goes back in."""
    rebuilt(*split(data))


def rebuilt(document: Buffer, buffers: Sequence[Buffer]) -> Any:
    """Decode a document; ``None`` if it is refused."""
    try:
        value = decode(document, buffers, lambda: allowed_for(known))
    except (MalformedError, NotAllowedError) as exc:
        one_line(exc)
        return None
    with contextlib.suppress(UnencodableError):
        again, more = encode(value)
        decode(again, more, lambda: allowed_for(known))
    return value


def one_line(exc: Exception) -> None:
    """Check that an error can be printed."""
    text = str(exc)
    assert len(text) <= 3000, text
    assert "\n" not in text or isinstance(exc, NotAllowedError), text


def message(data: bytes) -> None:
    """Decode a message: what is valid is what was sent."""
    try:
        found = messages.load(data, EVERY)
    except MalformedError as exc:
        one_line(exc)
        return
    assert messages.load(messages.dump(found), EVERY) == found


def record(data: bytes) -> None:
    """Decode records of the journal: as many as were announced, or fewer and an error."""
    count = data[0] if data else 0
    found = list(records.load_all(data[1:], count))
    assert len(found) <= count
    for one in found:
        if isinstance(one, MalformedError):
            one_line(one)
        else:
            again = records.prefixed(records.dump(one))
            assert repr(list(records.load_all(again, 1))) == repr([one])


def event(data: bytes) -> None:
    """Decode the data of an event."""
    try:
        found = plain.load(data)
    except MalformedError as exc:
        one_line(exc)
        return
    with contextlib.suppress(UnencodableError):
        assert repr(plain.load(plain.dump(found))) == repr(found)


def packet(data: bytes) -> None:
    """Decode a Socket.IO packet."""
    try:
        found = StrictPacket(encoded_packet=data)
    except MalformedError as exc:
        one_line(exc)
        return
    assert type(found.packet_type) is int


def answer(data: bytes) -> None:
    """Read an answer, and what it holds."""
    found: Answer | None
    try:
        found = ANSWERS.parse(data)
    except MalformedError as exc:
        one_line(exc)
        found = None
    try:
        other = _in_parts(data)
    except MalformedError as exc:
        one_line(exc)
        other = None
    if found is None or other is None:
        assert found is other
        return
    assert [(one.message, one.segments) for one in found.sections] == [
        (one.message, one.segments) for one in other.sections
    ]
    for section in found.sections:
        if isinstance(section.message, Value | Item) and section.message.form == "values":
            rebuilt(section.segments[0], section.segments[1:])
        elif isinstance(section.message, Records):
            list(records.load_all(section.segments[0], section.message.count))


def _in_parts(data: bytes) -> Answer:
    reader = ANSWERS.read(len(data))
    while True:
        try:
            target = memoryview(next(reader))
        except StopIteration as end:
            assert not data
            made: Answer = end.value
            return made
        assert len(target) <= len(data)
        target[:], data = data[: len(target)], data[len(target) :]


class _Transport(asyncio.Transport):
    """A connection to nowhere."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Have no limits."""

    def write(self, data: Any) -> None:
        """Lose it."""

    def abort(self) -> None:
        """End."""


def http(data: bytes) -> None:
    """Read an HTTP answer that comes in pieces."""
    step, data = 1 + (data[0] if data else 0) * 16, data[1:]

    async def scenario() -> None:
        link = _Link(memoryview(bytearray(64 << 10)), lambda _: None)
        link.connection_made(_Transport())
        asked = asyncio.ensure_future(link.request(b"", (), ANSWERS, 5))
        await asyncio.sleep(0)
        for at in range(0, len(data), step):
            rest = data[at : at + step]
            while rest and not asked.done():
                target = link.get_buffer(-1)
                count = min(len(target), len(rest))
                target[:count] = rest[:count]
                link.buffer_updated(count)
                rest = rest[count:]
        if not asked.done():
            link.connection_lost(None)
        try:
            await asked
        except MalformedError as exc:
            one_line(exc)
        except Exception as exc:
            if type(exc).__name__ != "ConnectionLost":
                raise

    _loop().run_until_complete(scenario())


def channel(data: bytes) -> None:
    """Read frames of a worker, and the messages in them."""

    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        lost: list[str] = []

        def receive(head: bytes, payload: Any) -> None:
            assert len(head) + len(payload or b"") <= len(data)
            messages.load(head, EVERY)
            if isinstance(payload, Parcel):
                payload.close()

        end = Channel(ours, receive, lost.append)
        theirs.setblocking(False)
        with theirs:
            theirs.send(data[: 64 << 10] or b"\0")
        end.drain()
        assert len(lost) == 1
        assert end.closed

    _loop().run_until_complete(scenario())


_one_loop: list[asyncio.AbstractEventLoop] = []


def _loop() -> asyncio.AbstractEventLoop:
    if not _one_loop or _one_loop[0].is_closed():
        _one_loop[:] = [asyncio.new_event_loop()]
    return _one_loop[0]


def close() -> None:
    """Close the loop that the targets have run in."""
    while _one_loop:
        _one_loop.pop().close()


TARGETS: dict[str, Callable[[bytes], None]] = {
    "answer": answer,
    "channel": channel,
    "event": event,
    "http": http,
    "message": message,
    "packet": packet,
    "record": record,
    "values": values,
}
