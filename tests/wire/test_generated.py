"""Random values of the whole data model come back equal and of the same types."""

from __future__ import annotations

import datetime as dt
import pathlib
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import pydantic
import pytest
from fuzz.project import (
    Access,
    Base,
    Cat,
    Dog,
    Frozen,
    Home,
    Numbers,
    Order,
    Pair,
    Row,
    Size,
    Word,
    known,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from agentix.wire.values.allowed import allowed_for
from agentix.wire.values.decode import decode
from agentix.wire.values.encode import encode

ZONES = st.one_of(
    st.none(),
    st.timezones(),
    st.builds(
        dt.timezone,
        st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)),
        st.text(max_size=5),
    ),
    st.builds(dt.timezone, st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23))),
)
FOLDED = st.builds(lambda one, fold: one.replace(fold=fold), st.datetimes(), st.integers(0, 1))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.binary(max_size=700).map(lambda data: int.from_bytes(data, "little", signed=True)),
    st.floats(),
    st.text(st.characters(exclude_categories=()), max_size=20),
    st.binary(max_size=20),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
    st.dates(),
    st.timedeltas(),
    st.complex_numbers(allow_nan=False),
    st.builds(lambda one, zone: one.replace(tzinfo=zone), FOLDED, ZONES),
    st.builds(lambda one, zone: one.replace(tzinfo=zone), st.times(), ZONES),
    st.builds(pathlib.Path, st.text("ab/.", max_size=8)),
    st.builds(pathlib.PurePosixPath, st.text("ab/.", max_size=8)),
    st.builds(range, st.integers(), st.integers(), st.integers().filter(bool)),
    st.just(...),
    st.sampled_from([*Size, *Word, Access(0), *Access, Access.R | Access.W]),
)
HASHABLE = st.recursive(
    SCALARS.filter(lambda one: one == one),
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.frozensets(inner, max_size=3),
        st.builds(Pair, inner, st.text(max_size=3)),
    ),
    max_leaves=4,
)

DTYPES = st.one_of(
    nps.boolean_dtypes(),
    nps.integer_dtypes(endianness="?"),
    nps.unsigned_integer_dtypes(endianness="?"),
    nps.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    nps.complex_number_dtypes(endianness="?", sizes=(64, 128)),
    nps.datetime64_dtypes(endianness="?"),
    nps.timedelta64_dtypes(endianness="?"),
    nps.byte_string_dtypes(min_len=1, max_len=9),
    nps.unicode_string_dtypes(endianness="?", min_len=1, max_len=9),
)


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """Draw arrays of any order, strides and offset."""
    array = draw(nps.arrays(DTYPES, nps.array_shapes(min_dims=0, min_side=0, max_dims=5)))
    how = draw(st.integers(0, 5))
    if how == 1:
        array = np.asfortranarray(array)
    elif how == 2:
        array = array.T
    elif how == 3 and array.ndim:
        array = array[:: draw(st.sampled_from([-1, 2, -3]))]
    elif how == 4:
        array = np.broadcast_to(array, (3, *array.shape))
    elif how == 5 and array.ndim > 1:
        array = np.moveaxis(array, 0, draw(st.integers(0, array.ndim - 1)))
    return array


def classes(inner: Any) -> Any:
    """Draw objects of the project's classes that hold other values."""
    aware = st.datetimes(timezones=st.timezones())
    return st.one_of(
        st.builds(Pair, inner, st.text(max_size=3)),
        st.builds(Frozen, st.integers(), st.none() | st.builds(Frozen, st.integers())),
        st.builds(
            Order,
            st.text(max_size=9),
            st.none() | aware,
            content=inner,
            size=st.none() | st.sampled_from(Size),
            counts=st.dictionaries(
                st.text(max_size=3), st.lists(st.integers(), max_size=5), max_size=3
            ),
            data=st.none() | arrays(),
            each=st.lists(st.floats(), max_size=5) | st.builds(range, st.integers(0, 9)),
            row=st.none() | st.builds(Row, number=st.integers()),
        ),
        st.builds(_home, st.integers(0, 9), st.lists(st.text(max_size=9), max_size=5), inner),
        st.builds(Numbers, st.lists(st.integers(), max_size=5)),
    )


def _home(lives: int, tags: list[str], other: Any) -> Home:
    if lives % 2:
        return Home(pet=Dog.model_validate({"tags": tags, "other": other}))
    cat = Cat.model_validate({"Lives": lives})
    cat._secret = lives
    return Home(pet=cat, numbers=(1.5, float("nan")), steps=[lives])


VALUES = st.recursive(
    st.one_of(SCALARS, arrays()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.sets(HASHABLE, max_size=4),
        st.frozensets(HASHABLE, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=4),
        st.builds(OrderedDict, st.dictionaries(HASHABLE, inner, max_size=3)),
        st.builds(Counter, st.lists(HASHABLE, max_size=5)),
        st.builds(
            defaultdict, st.sampled_from([None, list, int]), st.dictionaries(HASHABLE, inner)
        ),
        st.builds(deque, st.lists(inner, max_size=4), st.none() | st.integers(0, 5)),
        st.builds(slice, inner, inner, inner),
        classes(inner),
    ),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Compare values, all types in them, and what equality leaves out."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return (left.dtype, left.shape, left.tobytes()) == (
            right.dtype,
            right.shape,
            right.tobytes(),
        )
    if isinstance(left, pydantic.BaseModel):
        names = (
            "__dict__",
            "__pydantic_extra__",
            "__pydantic_private__",
            "__pydantic_fields_set__",
        )
        return all(same(getattr(left, name), getattr(right, name)) for name in names)
    if isinstance(left, Base):
        return same(vars(left), vars(right))
    if isinstance(left, slice):
        return same([left.start, left.stop, left.step], [right.start, right.stop, right.step])
    if isinstance(left, deque):
        return left.maxlen == right.maxlen and same(list(left), list(right))
    if isinstance(left, defaultdict) and left.default_factory is not right.default_factory:
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, set | frozenset):
        return left == right and Counter(map(type, left)) == Counter(map(type, right))
    if isinstance(left, dt.datetime | dt.time):
        return repr(left) == repr(right) and left.fold == right.fold
    return bool(left == right) or (left != left and right != right)


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@given(VALUES)
@settings(deadline=None, max_examples=200)
def test_values_come_back(value: Any) -> None:
    document, buffers = encode(value)
    copies = [one if type(one) is bytes else bytearray(one) for one in buffers]
    assert same(decode(document, copies, lambda: allowed_for(known)), value)


@given(arrays())
@settings(deadline=None, max_examples=200)
def test_arrays_come_back_and_can_be_written_to(array: np.ndarray[Any, Any]) -> None:
    document, buffers = encode(array)
    found = decode(document, [bytearray(one) for one in buffers], dict)
    assert same(found, np.asarray(array))
    assert found.flags.writeable
    assert found.flags.aligned


@given(arrays())
@settings(deadline=None, max_examples=100)
def test_elements_of_arrays_come_back(array: np.ndarray[Any, Any]) -> None:
    for element in array.reshape(-1)[:3]:
        found = decode(*encode(element), dict)
        assert type(found) is type(element)
        assert found == element or (found != found and element != element)
