"""Messages and frames are read strictly, or refused as malformed."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from every_message import MESSAGES
from hypothesis import given, settings
from hypothesis import strategies as st

from agentix.wire import frames, messages
from agentix.wire.errors import MalformedError
from agentix.wire.fields import shorten
from agentix.wire.messages import Call, Failure, Value
from agentix.wire.protocol import (
    MAX_BUFFERS,
    MAX_DOCUMENT,
    MAX_HEAD,
    MAX_PAYLOAD,
    MAX_TEXT,
    MAX_WAIT,
)

EVERY = tuple({type(message) for message in MESSAGES})


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_come_back_equal(message: Any) -> None:
    assert messages.load(messages.dump(message), type(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_valid_only_where_it_is_expected(message: Any) -> None:
    for cls in EVERY:
        if cls is not type(message):
            with pytest.raises(MalformedError):
                messages.load(messages.dump(message), cls)


@pytest.mark.parametrize(
    "fields",
    [
        (), ("call",), (1,), (["call"], 1), ("cancel", 5), ("cancel", ""), ("cancel", "x" * 65),
        ("cancel", b"x"), ("cancel", "1", "2"), ("ready", True), ("ready", -1),
        ("ready", 1 << 40), ("call", "1", "", "values", 5, 0, False, "", (1,)),
        ("call", "1", "x" * 2000, "values", 5, 0, False, "", (1,)),
        ("call", "1", "m::f", "other", 5, 0, False, "", (1,)),
        ("call", "1", "m::f", ["values"], 5, 0, False, "", (1,)),
        ("call", "1", "m::f", "values", MAX_PAYLOAD + 1, 0, False, "", (1,)),
        ("call", "1", "m::f", "values", 5, 0, False, "", ()),
        ("call", "1", "m::f", "values", 5, 0, False, "", (-1,)),
        ("call", "1", "m::f", "values", 5, 0, False, "", (1.0,)),
        ("call", "1", "m::f", "values", 5, 0, False, "", 7),
        ("call", "1", "m::f", "values", 5, 0, False, "", (MAX_PAYLOAD, 1)),
        ("call", "1", "m::f", "values", 5, MAX_WAIT + 1, False, "", (1,)),
        ("call", "1", "m::f", "values", 5, 0, 1, "", (1,)),
        ("call", "1", "m::f", "values", 5, 0, False, 3.11, (1,)), ("await", "1", -1),
        ("next", "1", -1, 0), ("next", "1", 0, True), ("follow", "", "", 0, 0), ("leave", 1),
        ("item", "1", 0, "values", "", (1,)), ("records", "j", 0, 0, (0,)),
        ("records", "j", 1, 1, (MAX_PAYLOAD,)), ("record", ()), ("record", (1, 2)), ("noted", 1),
        ("taken", "1", -1), ("signal", "/a", "", 0, (1,)), ("signal", "/a", "b", -1, (1,)),
        ("reply", 0, "", "", None, (0,)), ("reply", 1, "", "", 5000, (0,)), ("pending",),
        ("value", "1", "values", "", (MAX_DOCUMENT + 1,)),
        ("call", "1", "m::f", "values", 5, 0, False, "", (1,) * (MAX_BUFFERS + 2)),
        ("value", "1", "values", "a", (1,)), ("value", "1", "values", "c", (1, 2)),
        ("failure", "1", "odd", "T", "m", "t", None),
        ("failure", "1", "raised", "T", "m", "t", "x"),
        ("failure", "1", "raised", "T", "x" * (MAX_TEXT + 1), "t", None), {"call": 1}, "call",
        None,
    ],
)  # fmt: skip
def test_anything_else_is_malformed(fields: Any) -> None:
    with pytest.raises(MalformedError):
        messages.load(msgpack.packb(fields), EVERY)


def test_a_message_over_the_cap_is_not_even_looked_at() -> None:
    with pytest.raises(MalformedError, match="longer"):
        messages.load(bytes(MAX_HEAD + 1), Call)


@given(st.binary(max_size=100))
@settings(max_examples=500)
def test_arbitrary_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        messages.load(data, (Call, Value, Failure))


def test_texts_are_cut_in_the_middle() -> None:
    assert shorten("abc") == "abc"
    cut = shorten("a" * 100 + "b" * 100, 60)
    assert len(cut) <= 60
    assert cut.startswith("aa")
    assert cut.endswith("bb")
    assert "140 characters left out" in cut


@given(
    st.lists(st.binary(max_size=70), min_size=1, max_size=3),
    st.lists(st.binary(max_size=200), max_size=5),
)
def test_each_buffer_of_a_payload_begins_at_its_offset(
    stream: list[bytes], buffers: list[bytes]
) -> None:
    segments = (sum(map(len, stream)), *map(len, buffers))
    payload = b"".join(frames.pieces(stream, buffers))
    assert len(payload) == frames.payload_size(segments)
    whole = [b"".join(stream), *buffers]
    for start, expected in zip(frames.offsets(segments), whole, strict=True):
        assert start % frames.ALIGN == 0
        assert payload[start : start + len(expected)] == expected
