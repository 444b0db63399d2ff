"""Plain values: what goes in comes out, and hostile bytes end in one error, soon."""

from __future__ import annotations

import struct
import time
from collections import OrderedDict
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentix.wire import plain
from agentix.wire.errors import MalformedError, UnencodableError

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30
)


@given(values)
def test_what_goes_in_comes_out(value: Any) -> None:
    assert plain.load(plain.dump(value)) == value


def test_what_is_like_a_plain_value_becomes_one() -> None:
    assert plain.load(plain.dump((1, OrderedDict(a=(2,)), bytearray(b"x")))) == [
        1,
        {"a": [2]},
        b"x",
    ]
    assert plain.load(plain.dump("\udc80")) == "\udc80"


@pytest.mark.parametrize("value", [{1}, {1: 2}, {b"a": 1}, object(), 1j, [[{"a": print}]], 1 << 64])
def test_what_is_none_is_refused_in_one_line(value: Any) -> None:
    with pytest.raises(UnencodableError) as caught:
        plain.dump(value)
    assert "\n" not in str(caught.value)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UnencodableError, match="nested"):
        plain.dump(loop)


_MILLION = 1_000_000
HOSTILE = {
    "nothing": b"",
    "arrays that claim more than there is": b"\xdd\x03\xff\xff\xff" * 1024,
    "arrays that claim much more": b"\xdd\x7f\xff\xff\xff" * 10 * _MILLION,
    "maps that claim more than there is": b"\xdf\x03\xff\xff\xff" * 500,
    "deep nesting": b"\x91" * 60 * _MILLION,
    "sixty million empty maps": b"\xdd"
    + struct.pack(">I", 60 * _MILLION)
    + b"\x80" * 60 * _MILLION,
    "sixty million numbers": b"\xdd" + struct.pack(">I", 60 * _MILLION) + b"\x01" * 60 * _MILLION,
    "lists of lists": (b"\xdd" + struct.pack(">I", 4000) + b"\x01" * 4000) * 10_000,
    "an extension": b"\xd4\x05\x00",
    "a bad timestamp": b"\xc7\x05\xff" + bytes(5),
    "a number for a key": b"\x81\x01\x02",
    "two values": b"\x01\x02",
    "bad text": b"\xa1\xff",
    "half a text": b"\xdb\x00\x00\x00\xff" + b"x",
    "an unused byte": b"\xc1",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused_soon(name: str) -> None:
    began = time.monotonic()
    with pytest.raises(MalformedError) as caught:
        plain.load(HOSTILE[name])
    assert time.monotonic() - began < 5
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_malformed(data: bytes) -> None:
    try:
        value = plain.load(data)
    except MalformedError:
        return
    msgpack.packb(value, unicode_errors="surrogatepass")
