"""Mappings as columns: what goes in comes out, what else comes is refused, and no key is kept."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentix.wire import plain, records
from agentix.wire.columns import fold, unfold
from agentix.wire.errors import MalformedError
from agentix.wire.packets import StrictPacket
from agentix.wire.records import Log, SpanEvent, TraceEvent

if TYPE_CHECKING:
    from collections.abc import Callable

LEAVES = frozenset({type(None), int, str})
values = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(values)
def test_what_goes_in_comes_out(value: Any) -> None:
    folded = fold(value, "it", 50)
    assert unfold(folded, LEAVES, 50) == value
    assert not _has_maps(folded)


def _has_maps(node: Any) -> bool:
    return isinstance(node, dict) or (isinstance(node, list) and any(map(_has_maps, node)))


@pytest.mark.parametrize(
    "node",
    [
        1.5, {}, {"a": 1}, [1], [{}], [[{}]], [["a"], []], [[], [1]], [["a"], 1], ["a", [1]],
        [[1], [1]], [[b"a"], [1]], [["a"], [1], 2], [["a", "b"], [1]], [[[[[[[[]]]]]]]],
    ],
)  # fmt: skip
def test_what_is_not_folded_is_refused(node: Any) -> None:
    with pytest.raises(MalformedError):
        unfold(node, LEAVES, 3)


def one_record(entry: records.Entry) -> Any:
    """Send a record to where it is read."""
    (found,) = records.load_all(records.prefixed(records.dump(entry)), 1)
    assert not isinstance(found, Exception), found
    return found


READERS: dict[str, Callable[[str], Any]] = {
    "events": lambda key: plain.load(plain.dump([{key: {key: 1}}])),
    "logs": lambda key: one_record(Log(1, 20, "x", "y", extra={key: {key: 1}})),
    "traces": lambda key: one_record(TraceEvent("end", "0", "x", 1, 2, {key: [{key: 1}]})),
    "spans": lambda key: one_record(
        SpanEvent("end", "0", "1", "", "x", 1, 2, "ok", "", {key: 1}, [["e", 1, {key: 1}]])
    ),
    "packets": lambda key: (
        StrictPacket(
            encoded_packet=msgpack.packb({"type": 0, "nsp": "/x", "data": {key: "1"}})
        ).data
    ),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_key_that_comes_from_a_sandbox_is_not_interned(read: Callable[[str], Any]) -> None:
    name = os.urandom(8).hex()
    found = read("".join(["key-", name]))
    assert name in repr(found)
    fresh = "".join(["key-", name])
    assert sys.intern(fresh) is fresh, "another one was interned before"


def hostile_packet(key: str, **more: Any) -> None:
    """Read a packet that has a map where none belongs."""
    StrictPacket(encoded_packet=msgpack.packb({"type": 2, "nsp": "/x", "data": ["e"]} | more))


def hostile_record(key: str, at: int) -> None:
    """Read a record that has a map where none belongs."""
    values = ["log", 1, 20, "x", "y", "", [], "", "", "", 1, "", 1, "", 1, "", "", []]
    values[at] = {key: 1}
    (found,) = records.load_all(records.prefixed(msgpack.packb(values)), 1)
    assert isinstance(found, MalformedError)
    raise found


HOSTILE: dict[str, Callable[[str], Any]] = {
    "an event": lambda key: plain.load(msgpack.packb({key: 1})),
    "in an event": lambda key: plain.load(msgpack.packb([[{key: 1}]])),
    "a record": lambda key: hostile_record(key, -1),
    "a long record": lambda key: hostile_record(key + "x" * 70_000, 6),
    "a packet's key": lambda key: hostile_packet(key, **{key: 1}),
    "in a packet": lambda key: hostile_packet(key, data=["e", {key: 1}]),
    "in a packet's id": lambda key: hostile_packet(key, id={key: 1}),
    "a long map in a packet": lambda key: hostile_packet(
        key, type=0, data={f"{key}{n}": 1 for n in range(16)}
    ),
}


@pytest.mark.parametrize("read", HOSTILE.values(), ids=HOSTILE)
def test_maps_are_refused_before_their_keys_are_read(read: Callable[[str], Any]) -> None:
    size = getattr(sys, "_getunicodeinternedsize", lambda: 0)  # known from Python 3.12 on
    with pytest.raises(MalformedError):
        read(os.urandom(8).hex())
    before = size()
    for _ in range(100):
        with pytest.raises(MalformedError):
            read(os.urandom(8).hex())
    assert size() - before < 50
