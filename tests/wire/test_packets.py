"""Socket.IO packets: read strictly, whoever wrote them."""

from __future__ import annotations

import time
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentix.wire.errors import MalformedError
from agentix.wire.packets import StrictPacket, event_packet


def test_an_event_is_read_as_it_was_written() -> None:
    packet = StrictPacket(encoded_packet=event_packet("/x", "step", 1, 0, b"data", None))
    assert (packet.packet_type, packet.namespace) == (2, "/x")
    assert packet.data == ["step", 1, 0, b"data", None]


GOOD: dict[str, Any] = {"type": 2, "nsp": "/x", "data": ["step", 1]}
BAD: list[Any] = [
    [],
    7,
    {},
    GOOD | {"more": 1},
    GOOD | {"type": 5},
    GOOD | {"type": 6},
    GOOD | {"type": -1},
    GOOD | {"type": True},
    GOOD | {"type": "2"},
    GOOD | {"type": None},
    GOOD | {"nsp": "x"},
    GOOD | {"nsp": None},
    GOOD | {"nsp": b"/x"},
    GOOD | {"nsp": "/" * 1000},
    GOOD | {"id": -1},
    GOOD | {"id": 1 << 60},
    GOOD | {"id": "1"},
    GOOD | {"data": None},
    GOOD | {"data": []},
    GOOD | {"data": {}},
    GOOD | {"data": [7]},
    GOOD | {"data": [""]},
    GOOD | {"data": ["x" * 1000]},
    GOOD | {"data": ["x", *range(5000)]},
    GOOD | {"data": ["x", [[0] * 1000 for _ in range(10)]]},
    GOOD | {"data": ["x", msgpack.ExtType(5, b"xxxx")]},
    {"type": 3, "nsp": "/x", "data": []},
    {"type": 3, "nsp": "/x", "data": 5, "id": 1},
    {"type": 0, "nsp": "/x", "data": ["sid"]},
]


@pytest.mark.parametrize("packet", BAD)
def test_what_is_no_packet_is_malformed(packet: Any) -> None:
    with pytest.raises(MalformedError):
        StrictPacket(encoded_packet=msgpack.packb(packet))


@pytest.mark.parametrize("data", ["2", '2["a"]', {"type": 2}, "", b"", {}])
def test_text_and_nothing_are_malformed(data: Any) -> None:
    with pytest.raises(MalformedError):
        StrictPacket(encoded_packet=data)


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\x00\xff\xff\xff" * 10_000_000,
        b"\x91" * 60_000_000,
        (b"\xdc\x0f\xff" + b"\x80" * 4095) * 1000,
        b"\xdc\x0f\xff" * 1000,
    ],
)
def test_a_long_one_is_refused_soon(data: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(MalformedError):
        StrictPacket(encoded_packet=data)
    assert time.monotonic() - began < 2


@given(
    st.binary(max_size=200)
    | st.binary(max_size=60).map(lambda end: event_packet("/x", "a")[:-3] + end)
)
def test_any_bytes_are_a_packet_or_malformed(data: bytes) -> None:
    try:
        StrictPacket(encoded_packet=data)
    except MalformedError:
        return
