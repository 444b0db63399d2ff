"""The reading of answers, fed in every way that bytes can be cut."""

from __future__ import annotations

import asyncio
import ctypes
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_runtime.raw import body, http

from agentix.client.answers import Expected, Refusal
from agentix.client.http import ConnectionLost, _Link
from agentix.client.memory import Bytes
from agentix.wire.errors import MalformedError
from agentix.wire.frames import pieces
from agentix.wire.messages import Failure, Item, Pending, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

EXPECTED = Expected((Item, Value, Failure, Pending), 32 << 20, 128)


class Wire(asyncio.Transport):
    """Takes everything that is sent, and notes when it is closed."""

    link: _Link

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self.link.connection_lost, None)


async def outcomes(data: bytes, cuts: Sequence[int], requests: int = 1) -> list[Any]:
    """Tell what comes of requests that are answered with bytes which arrive in these pieces."""
    scratch = memoryview(bytearray(1 << 16))
    link = _Link(scratch, lambda _: None)
    wire = Wire()
    wire.link = link
    link.connection_made(wire)
    found: list[Any] = []
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    todo = [data[start:end] for start, end in pairwise(edges)]
    for _ in range(requests):
        request = asyncio.ensure_future(link.request(b"", (), EXPECTED, 60))
        await asyncio.sleep(0)
        while todo and not request.done():
            piece = memoryview(todo.pop(0))
            while piece:
                buffer = link.get_buffer(-1)
                size = min(len(buffer), len(piece))
                buffer[:size] = piece[:size]
                link.buffer_updated(size)
                piece = piece[size:]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        if not request.done():
            link.connection_lost(None)
        try:
            found.append(await request)
        except (MalformedError, ConnectionLost) as exc:
            found.append(f"{type(exc).__name__}: {exc}")
        if not link.reusable:
            found.append("closed")
            break
    link.close()
    await asyncio.sleep(0)
    return found


def plain(found: list[Any]) -> list[Any]:
    """Give outcomes in a form that can be compared, whatever memory they are in."""
    shown: list[Any] = []
    for one in found:
        if isinstance(one, str):
            shown.append(one)
            continue
        if isinstance(one, Refusal):
            shown.append(one)
            continue
        shown.append(one.mark)
        for section in one.sections:
            for kind, part in zip(
                getattr(section.message, "kinds", ""), section.segments[1:], strict=True
            ):
                assert isinstance(part, bytes) == (kind == "b")
                assert kind == "b" or not memoryview(part).readonly
        shown += [
            (section.message, [bytes(part) for part in section.segments])
            for section in one.sections
        ]
    return shown


def item(number: int, document: bytes, buffers: list[bytes], kinds: str) -> bytes:
    """Make a section with a payload."""
    sizes = (len(document), *map(len, buffers))
    payload = b"".join(pieces([document], buffers))
    return body(Item("id", number, "values", kinds[: len(buffers)], sizes), payload=payload)[8:]


items = st.builds(
    item,
    st.integers(1, 99),
    st.binary(max_size=40),
    st.lists(st.binary(max_size=300), max_size=3),
    st.text("ab", min_size=3, max_size=3),
)
answers = st.builds(
    lambda mark, sections, last: mark.to_bytes(8, "little") + b"".join(sections) + last,
    st.integers(0, 1 << 63),
    st.lists(items, max_size=4),
    st.sampled_from([body(Pending("id"))[8:], body(Failure("id", "raised", "T", "m"))[8:]]),
)
cuts = st.lists(st.integers(0, 1 << 12), max_size=12)


@settings(deadline=None, max_examples=300)
@given(st.lists(answers, min_size=1, max_size=3), cuts)
def test_answers_are_the_same_however_they_are_cut(bodies: list[bytes], cuts: list[int]) -> None:
    for one in bodies:
        parsed = EXPECTED.parse(one)
        found = asyncio.run(outcomes(http(one), cuts))
        assert plain(found) == plain([parsed])


@settings(deadline=None, max_examples=400)
@given(
    answers,
    cuts,
    st.lists(st.tuples(st.integers(0, 1 << 11), st.integers(0, 255)), max_size=3),
    st.integers(0, 1 << 11),
    st.binary(max_size=20),
)
def test_bytes_that_are_wrong_come_to_the_same_end_however_they_are_cut(
    one: bytes, cuts: list[int], changes: list[tuple[int, int]], at: int, inserted: bytes
) -> None:
    data = bytearray(http(one))
    for place, value in changes:
        data[place % len(data)] = value
    at %= len(data)
    data[at:at] = inserted
    whole = asyncio.run(outcomes(bytes(data), []))
    cut = asyncio.run(outcomes(bytes(data), cuts))
    # Whether what follows an answer came with it, or is yet to come, is all that may differ.
    assert [x for x in plain(cut) if x != "closed"] == [x for x in plain(whole) if x != "closed"]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 5 << 18), max_size=20), st.sampled_from(["ab", "ba", "bb", "aa"]))
def test_large_pieces_are_what_they_were(cuts: list[int], kinds: str) -> None:
    large = [bytes(range(256)) * (1 << 10), bytes(range(255, -1, -1)) * (3 << 10)]
    one = bytes(8) + item(1, b"document", large, kinds)
    [answer] = asyncio.run(outcomes(http(one), cuts))
    document, *buffers = answer.sections[0].segments
    assert bytes(document) == b"document"
    assert [bytes(buffer) for buffer in buffers] == large
    assert plain([answer])


@pytest.mark.parametrize("cuts", [[], [200], range(0, 9 << 20, 1 << 18), range(0, 9 << 20, 999)])
def test_bytes_stay_where_they_were_received(
    monkeypatch: pytest.MonkeyPatch, cuts: Sequence[int]
) -> None:
    places: list[int] = []

    class Noting(Bytes):
        def view(self) -> memoryview:
            view = super().view()
            places.append(ctypes.addressof(ctypes.c_char.from_buffer(view)))
            return view

    monkeypatch.setattr("agentix.client.answers.Bytes", Noting)
    size = 9 << 20
    value = Value("id", "values", "bb", (64, size, 64 << 10))
    data = http(body(value, payload=bytes(64 + size + (64 << 10))))
    [answer] = asyncio.run(outcomes(data, cuts))
    found = answer.sections[0].segments[1:]
    assert [len(one) for one in found] == [size, 64 << 10]
    if cuts:
        assert [id(one) + bytes.__basicsize__ - 1 for one in found] == places


@pytest.mark.parametrize("end", ["", "Connection: close\r\n", "connection: Keep-Alive\r\n"])
async def test_a_connection_is_kept_unless_the_other_side_wants_otherwise(end: str) -> None:
    one = body(Pending("id"))
    head = f"HTTP/1.1 200 OK\r\n{end}Content-Length: {len(one)}\r\n\r\n".encode()
    found = await outcomes(head + one, [], 1)
    assert ("closed" in found) == (end == "Connection: close\r\n")


async def test_answers_of_one_connection_belong_to_one_request_each() -> None:
    datas = [http(body(Pending(str(number)))) for number in range(3)]
    ends = [sum(map(len, datas[: n + 1])) for n in range(3)]
    found = await outcomes(b"".join(datas), ends, 3)
    assert [one.sections[0].message.id for one in found] == ["0", "1", "2"]
