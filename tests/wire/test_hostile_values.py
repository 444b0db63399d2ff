"""Whatever a sandbox sends as a result, decoding ends in a value or one typed error, in bounds."""

from __future__ import annotations

import contextlib
import itertools
import operator
import pickle
import time
import tracemalloc
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack
import numpy as np
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentix.wire.errors import MalformedError, NotAllowedError, UnencodableError
from agentix.wire.protocol import MAX_DOCUMENT, MAX_ELEMENTS
from agentix.wire.values import tags
from agentix.wire.values.allowed import allowed_for
from agentix.wire.values.decode import decode
from agentix.wire.values.encode import encode

if TYPE_CHECKING:
    from collections.abc import Callable


class Size(Enum):
    SMALL = 1


class Pair(NamedTuple):
    a: int
    b: str


@dataclass
class Order:
    name: str
    count: int
    size: Size | None = None
    tags: dict[str, list[int]] | None = None
    sloppy: int = None  # type: ignore[assignment]


class Model(pydantic.BaseModel):
    x: int = pydantic.Field(gt=3)
    _note: str = ""


def known() -> Order | Pair | Model:
    raise NotImplementedError


HERE = __name__
CLASSES = {
    "order": [tags.DATACLASS, HERE, "Order", ["name", "count", "size", "tags", "sloppy"]],
    "pair": [tags.NAMED_TUPLE, HERE, "Pair", ["a", "b"]],
    "size": [tags.ENUM, HERE, "Size", []],
    "model": [tags.PYDANTIC, HERE, "Model", ["x"]],
}


def give(root: Any, classes: list[Any] | None = None, buffers: list[Any] | None = None) -> Any:
    """Decode a document made by hand."""
    document = msgpack.packb([classes or [], root], unicode_errors="surrogatepass")
    return decode(document, buffers or [], lambda: allowed_for(known))


MALFORMED: dict[str, Callable[[], Any]] = {
    "no document": lambda: decode(b"", [], dict),
    "trailing bytes": lambda: decode(msgpack.packb([[], 1]) + b"\0", [], dict),
    "not a pair": lambda: decode(msgpack.packb([1]), [], dict),
    "a map": lambda: give({"a": 1}),
    "a map inside": lambda: give([tags.LIST, [{"a": 1}]]),
    "a map with odd keys": lambda: decode(b"\x92\x90\x81\x01\x02", [], dict),
    "a timestamp": lambda: give([tags.LIST, [msgpack.Timestamp(1)]]),
    "an extension": lambda: give(msgpack.ExtType(5, b"x")),
    "no tag": lambda: give([]),
    "unknown tag": lambda: give([99, 1]),
    "a tag that is no number": lambda: give([["x"], 1]),
    "a true tag": lambda: give([True, [1]]),
    "too few fields": lambda: give([tags.DATE, 2020, 1]),
    "too many fields": lambda: give([tags.LIST, [], []]),
    "a container of nothing": lambda: give([tags.LIST, None]),
    "invalid text": lambda: decode(b"\x92\x90\xa2\xff\xff", [], dict),
    "a length of 2**32": lambda: decode(b"\x92\x90\xdd\xff\xff\xff\xff", [], dict),
    "a million levels": lambda: decode(
        b"\x92\x90" + b"\x92\x01\x91" * 1_000_000 + b"\xc0", [], dict
    ),
    "many levels": lambda: give(_nested(300)),
    "an integer of 10**7 digits": lambda: give([tags.INT, b"\xff" * 4_200_000]),
    "an integer of text": lambda: give([tags.INT, "5"]),
    "a decimal of 10**7 digits": lambda: give([tags.DECIMAL, "9" * 10_000_000]),
    "a decimal of words": lambda: give([tags.DECIMAL, "ten"]),
    "a fraction by zero": lambda: give([tags.FRACTION, 1, 0]),
    "a range of step zero": lambda: give([tags.RANGE, 1, 2, 0]),
    "a short UUID": lambda: give([tags.UUID, b"123"]),
    "a path with NUL that is bytes": lambda: give([tags.PATH, b"\0", True]),
    "the year 10000": lambda: give([tags.DATE, 10_000, 1, 1]),
    "a year of float": lambda: give([tags.DATE, 2020.0, 1, 1]),
    "a zone of lists": lambda: give([tags.TIME, 1, 1, 1, 1, 0, [tags.LIST, []]]),
    "a zone of nothing": lambda: give([tags.TIME, 1, 1, 1, 1, 0, []]),
    "a zone outside": lambda: give([tags.NAMED_ZONE, "../../etc/passwd"]),
    "a zone that is a module": lambda: give([tags.NAMED_ZONE, "x.y/z"]),
    "a fraction of many digits": lambda: give([tags.FRACTION, [tags.INT, b"\1" * 5000], 3]),
    "a zone that is none": lambda: give([tags.NAMED_ZONE, "Nowhere/None"]),
    "an absurd timedelta": lambda: give([tags.TIMEDELTA, 1 << 60, 0, 0]),
    "the same key twice": lambda: give([tags.DICT, [1, 1.0], [1, 2]]),
    "more keys than values": lambda: give([tags.DICT, [1, 2], [1]]),
    "unhashable keys": lambda: give([tags.DICT, [[tags.LIST, []]], [1]]),
    "an element twice": lambda: give([tags.SET, [1, True]]),
    "a factory of its own": lambda: give([tags.DEFAULT_DICT, [], [], "eval"]),
    "colliding keys": lambda: give(
        [tags.SET, [[tags.INT, (n * (2**61 - 1)).to_bytes(16, "little")] for n in range(5_000)]]
    ),
    "a buffer that is not there": lambda: give([tags.BYTES, 0]),
    "a negative buffer": lambda: give([tags.BYTES, -1], buffers=[b"x"]),
    "a buffer twice": lambda: give([tags.LIST, [[tags.BYTES, 0]] * 2], buffers=[b"x"]),
    "a buffer unused": lambda: give(1, buffers=[b"x"]),
    "an array of objects": lambda: give([tags.ARRAY, "|O", [1], "C", b"12345678"]),
    "an array of void": lambda: give([tags.ARRAY, "|V8", [1], "C", b"12345678"]),
    "an array of records": lambda: give([tags.ARRAY, "i4,i4", [1], "C", b"12345678"]),
    "an array of arrays": lambda: give([tags.ARRAY, "(2,)i4", [1], "C", b"12345678"]),
    "an array of nothing": lambda: give([tags.ARRAY, "<U0", [10**9], "C", b""]),
    "an array of stopped times": lambda: give([tags.ARRAY, "<M8[0s]", [1], "C", b"12345678"]),
    "an array of odd times": lambda: give([tags.ARRAY, "<M8[zz]", [1], "C", b"12345678"]),
    "an array that lies": lambda: give([tags.ARRAY, "<f8", [2], "C", b"12345678"]),
    "an array of 2**62": lambda: give([tags.ARRAY, "<f8", [1 << 62], "C", b""]),
    "an array of wrapped size": lambda: give([tags.ARRAY, "<f8", [1 << 32, 1 << 32], "C", b""]),
    "an array less than empty": lambda: give([tags.ARRAY, "<f8", [-1, -1], "C", b"12345678"]),
    "an array of 100 dimensions": lambda: give([tags.ARRAY, "<f8", [1] * 100, "C", b"12345678"]),
    "an array in odd order": lambda: give([tags.ARRAY, "<f8", [1], "K", b"12345678"]),
    "an array of no characters": lambda: give([tags.ARRAY, "<U1", [1], "C", b"\xff" * 4]),
    "a scalar of objects": lambda: give([tags.SCALAR, "|O", b"12345678"]),
    "a scalar that lies": lambda: give([tags.SCALAR, "<f8", b"1"]),
    "a table of nothing": lambda: give(1, ["x"]),
    "a table of bytes": lambda: give(1, [[1, b"os", b"system", []]]),
    "too many classes": lambda: give(1, [CLASSES["pair"]] * 100_000),
    "a class that is not listed": lambda: give([tags.OBJECT, 0, [1, "x"]]),
    "a class of another kind": lambda: give([tags.MEMBER, 0, "a"], [CLASSES["pair"]]),
    "a kind that lies": lambda: give(1, [[tags.DATACLASS, HERE, "Pair", ["a", "b"]]]),
    "fields of its own": lambda: give(1, [[tags.NAMED_TUPLE, HERE, "Pair", ["a", "b", "c"]]]),
    "too few values": lambda: give([tags.OBJECT, 0, [1]], [CLASSES["pair"]]),
    "a field of another type": lambda: give([tags.OBJECT, 0, ["x", "y"]], [CLASSES["pair"]]),
    "a field that is None": lambda: give(
        [tags.OBJECT, 0, [None, 1, None, None, 1]], [CLASSES["order"]]
    ),
    "a container of another type": lambda: give(
        [tags.OBJECT, 0, ["n", 1, None, [tags.DICT, ["k"], [[tags.LIST, ["x"]]]], 1]],
        [CLASSES["order"]],
    ),
    "a member that is none": lambda: give([tags.MEMBER, 0, "LARGE"], [CLASSES["size"]]),
    "a private member": lambda: give([tags.MEMBER, 0, "__class__"], [CLASSES["size"]]),
    "a model that is invalid": lambda: give(
        [tags.MODEL, 0, ["not a number"], ["x"], None, None], [CLASSES["model"]]
    ),
    "a model with odd fields set": lambda: give(
        [tags.MODEL, 0, [5], ["__class__"], None, None], [CLASSES["model"]]
    ),
    "a model with extra fields": lambda: give(
        [tags.MODEL, 0, [5], ["x"], [tags.DICT, ["y"], [1]], None], [CLASSES["model"]]
    ),
    "a model without its private attributes": lambda: give(
        [tags.MODEL, 0, [5], ["x"], None, None], [CLASSES["model"]]
    ),
    "a model with odd private attributes": lambda: give(
        [tags.MODEL, 0, [5], ["x"], None, [tags.DICT, ["_other"], [1]]], [CLASSES["model"]]
    ),
    "a private attribute of another type": lambda: give(
        [tags.MODEL, 0, [5], ["x"], None, [tags.DICT, ["_note"], [1]]], [CLASSES["model"]]
    ),
    "private attributes that are no dict": lambda: give(
        [tags.MODEL, 0, [5], ["x"], None, [tags.LIST, []]], [CLASSES["model"]]
    ),
    "a pickle": lambda: decode(pickle.dumps(print), [], dict),
    "a pickle of an extension": lambda: decode(b"\x80\x04\x82\x01.", [], dict),
    "a pickled attribute": lambda: decode(
        pickle.dumps((operator.attrgetter("x"), operator.itemgetter(1))), [], dict
    ),
    "a pickled array of objects": lambda: decode(
        pickle.dumps(np.array([print, object], dtype=object)), [], dict
    ),
}


def _nested(levels: int) -> Any:
    node: Any = 1
    for _ in range(levels):
        node = [tags.LIST, [node]]
    return node


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_malformed_is_one_typed_error_in_bounded_time(what: str) -> None:
    start = time.perf_counter()
    with pytest.raises(MalformedError) as caught:
        MALFORMED[what]()
    assert time.perf_counter() - start < 5
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_what_is_well_formed_is_not_refused() -> None:
    order = [tags.OBJECT, 0, ["n", 1, [tags.MEMBER, 1, "SMALL"], None, None]]
    assert give(order, [CLASSES["order"], CLASSES["size"]]) == Order("n", 1, Size.SMALL)


@pytest.mark.parametrize(
    "name",
    [
        ("os", "system"), ("builtins", "eval"), (HERE, "Order.__init__"), (HERE, "order"),
        (HERE, "_nested"), (HERE, "known"), ("antigravity", "x"), ("", ""), ("..", "x"),
        (f"{HERE}.Order", "__class__"), ("operator", "attrgetter"),
    ],
)  # fmt: skip
def test_names_that_nobody_allowed_are_refused_as_such(name: tuple[str, str]) -> None:
    import sys

    before = set(sys.modules)
    for kind in range(5):
        with pytest.raises(NotAllowedError):
            give(1, [[kind, *name, []]])
    assert set(sys.modules) == before


def test_memory_is_bounded_by_what_arrived() -> None:
    document = msgpack.packb([[], [tags.LIST, [[tags.BYTES, 0]] * 100_000]])
    buffer = bytearray(8 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedError):
            decode(document, [buffer], dict)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "element", [b"\x90", b"\x80", b"\xe0", b"\x91\xc0"], ids=["[]", "{}", "-32", "[None]"]
)
def test_memory_is_bounded_by_the_number_of_values_too(element: bytes) -> None:
    """One byte can stand for a hundred in memory."""
    many = 1 << 20
    part = b"\xdd" + many.to_bytes(4, "big") + element * many
    document = b"\x92\x90\x92\x01\x9c" + part * 12
    tracemalloc.start()
    try:
        with pytest.raises(MalformedError, match=r"values|a map"):
            decode(document, [], dict)
        assert tracemalloc.get_traced_memory()[1] < 128 << 20
    finally:
        tracemalloc.stop()


def test_what_the_reader_would_refuse_is_not_sent() -> None:
    assert len(encode([0] * (MAX_ELEMENTS // 2))[0]) < MAX_ELEMENTS
    with pytest.raises(UnencodableError, match="numpy arrays"):
        encode([0] * (MAX_ELEMENTS + 1))
    with pytest.raises(UnencodableError, match="numpy arrays"):
        encode([[0] * (MAX_ELEMENTS // 2)] * 3)
    with pytest.raises(UnencodableError, match="numpy arrays"):
        encode("x" * (MAX_DOCUMENT + 1))


def decodes_or_is_refused(document: bytes, buffers: list[Any]) -> None:
    """Assert the one thing that holds for any bytes."""
    with contextlib.suppress(MalformedError, NotAllowedError):
        decode(document, buffers, lambda: allowed_for(known))


@given(st.binary(max_size=200), st.lists(st.binary(max_size=20), max_size=2))
@settings(deadline=2000, max_examples=400)
def test_arbitrary_bytes(document: bytes, buffers: list[bytes]) -> None:
    decodes_or_is_refused(document, buffers)


nodes = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(),
        st.text(max_size=5),
        st.binary(max_size=16), st.sampled_from(["<f8", "|O", "C", "SMALL", "list"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.tuples(st.integers(0, 63), inner).map(list),
        st.tuples(st.integers(0, 63), st.lists(inner, max_size=5)).map(list),
        st.tuples(st.integers(0, 63), inner, inner).map(list),
        st.tuples(st.integers(0, 63), inner, inner, inner).map(list),
    ),
    max_leaves=20,
)  # fmt: skip
tables = st.lists(
    st.one_of(
        st.sampled_from(list(CLASSES.values())),
        st.tuples(st.integers(0, 5), st.just(HERE), st.sampled_from(["Order", "Pair"]), nodes)
        .map(list),
    ),
    max_size=3,
)  # fmt: skip


@given(tables, nodes, st.lists(st.binary(max_size=16), max_size=2))
@settings(deadline=2000, max_examples=600)
def test_arbitrary_trees(table: Any, root: Any, buffers: list[bytes]) -> None:
    decodes_or_is_refused(msgpack.packb([table, root]), buffers)


SAMPLE = [
    Order("n", 1, Size.SMALL, {"k": [1]}), Pair(1, "x"), Model(x=5), {1: (2, {3}), "s": 1 << 70},
    b"x" * 20_000,
]  # fmt: skip


@given(st.data())
@settings(deadline=2000, max_examples=600)
def test_mutated_encodings(data: st.DataObject) -> None:
    document, buffers = encode(SAMPLE)
    mutated = bytearray(document)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        how = data.draw(st.sampled_from(["change", "remove", "insert", "cut"]))
        if how == "change":
            mutated[at] = data.draw(st.integers(0, 255))
        elif how == "remove":
            del mutated[at]
        elif how == "insert":
            mutated.insert(at, data.draw(st.integers(0, 255)))
        else:
            del mutated[at:]
        if not mutated:
            break
    decodes_or_is_refused(bytes(mutated), list(buffers))


def test_no_key_of_a_map_is_read() -> None:
    """CPython 3.12 would keep it for ever."""
    for many in (1, 100, 100_000):
        pairs = b"".join(b"\xa7%07d\xc0" % number for number in range(many))
        for start in (b"\x92\x90\xdf", b"\x92\x90\x92\x01\x91\xdf"):
            with pytest.raises(MalformedError, match="max_map_len"):
                decode(start + many.to_bytes(4, "big") + pairs, [], dict)


def test_many_keys_of_honest_values_have_the_same_hash() -> None:
    grid = set(itertools.product(range(-2, 3), repeat=6))
    assert decode(*encode(grid), dict) == grid
    small = dict.fromkeys(itertools.product((-1, -2), repeat=8))
    assert decode(*encode(small), dict) == small


def test_an_array_of_truths_holds_nothing_else() -> None:
    for data, buffers in ((b"\x02\x00\xff", []), (0, [b"\x02\x00\xff"])):
        found = give([tags.ARRAY, "|b1", [3], "C", data], buffers=buffers)
        assert found.view("u1").tolist() == [1, 0, 1]
        assert found.flags.writeable


def test_an_error_is_told_in_one_line_whoever_wrote_it() -> None:
    class LoudError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def allowed() -> Any:
        raise LoudError

    document = msgpack.packb([[CLASSES["pair"]], 1])
    with pytest.raises(MalformedError, match=r"LoudError: .which cannot be told."):
        decode(document, [], allowed)
    with pytest.raises(MalformedError, match=r"x: Input should be greater than 3$"):
        give([tags.MODEL, 0, [1], ["x"], None, None], [CLASSES["model"]])
