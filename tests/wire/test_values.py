"""A value of the data model comes back equal and of the same type."""

from __future__ import annotations

import datetime as dt
import enum
import functools
import pathlib
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pydantic
import pytest

from agentix.wire.errors import NotAllowedError, UnencodableError
from agentix.wire.frames import Deferred
from agentix.wire.protocol import OUT_OF_BAND
from agentix.wire.values.allowed import Names, allow_type, allowed_for
from agentix.wire.values.decode import decode
from agentix.wire.values.encode import encode, outline

T = TypeVar("T")


def there_and_back(value: Any, allowed: Names | None = None) -> Any:
    """Encode and decode, the buffers copied as a socket would."""
    document, buffers = encode(value)
    copies = [bytes(one) if type(one) is bytes else bytearray(one) for one in buffers]
    return decode(document, copies, lambda: allowed or {})


def same(left: Any, right: Any) -> bool:
    """Compare values and all types in them."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple | deque):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, set | frozenset):
        return left == right and sorted(map(repr, left)) == sorted(map(repr, right))
    return bool(left == right) or (left != left and right != right)  # NaN


BERLIN = ZoneInfo("Europe/Berlin")
VALUES: list[Any] = [
    None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**64 - 1, 2**64, -(2**63) - 1, 10**1000,
    1.5, float("inf"), float("nan"), -0.0, 1j, complex(float("inf"), -0.0),
    "", "ç\0\U0010ffff", "\udc80", b"", b"\xff" * 10, b"x" * OUT_OF_BAND, bytearray(b"x"),
    bytearray(OUT_OF_BAND), [], [1, [2, [3]]], (), (1, (2,)), set(), {1, "a", (2, 3)},
    frozenset({frozenset()}), {}, {"a": 1, 2: "b", None: (), (1, 2): {}}, {1: 1, 1.5: 2},
    OrderedDict(b=1, a=2), Counter("aab"), deque([1, 2], 5), deque(), defaultdict(list, {1: [2]}),
    defaultdict(None, {1: 2}), range(3), range(10**30, 0, -(10**29)), slice(1, None, "x"), ...,
    Decimal("1.50"), Decimal("NaN"), Decimal("-Infinity"), Fraction(1, 3), Fraction(10**40, 7),
    UUID(int=5), pathlib.Path("/a/b"), pathlib.PurePosixPath("rel/x"), pathlib.Path(),
    dt.date.max, dt.datetime.min, dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2021, 10, 31, 2, 30, tzinfo=BERLIN, fold=1), dt.time(23, 59, 59, 999_999),
    dt.time(1, tzinfo=dt.timezone(dt.timedelta(hours=-3, microseconds=1), "odd")),
    dt.timedelta.max, dt.timedelta(-1, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_builtin_values(value: Any) -> None:
    assert same(there_and_back(value), value)
    assert same(there_and_back([value, {"key": (value,)}]), [value, {"key": (value,)}])


ARRAYS: list[Any] = [
    np.arange(10_000, dtype="f8"), np.arange(6).reshape(2, 3), np.asfortranarray(np.eye(3)),
    np.arange(24).reshape(2, 3, 4)[:, ::2, 1:], np.array(7), np.zeros((0, 5)), np.array([True]),
    np.array([-1], "i1"), np.array([1], "u8"), np.array([1.5], "f2"), np.array([1 + 2j], "c8"),
    np.array(["2020-01-01"], "M8[D]"), np.array([5], "m8[ms]"), np.array(["NaT"], "M8[ns]"),
    np.array(["ab", "ç"]), np.array([b"ab"]), np.arange(3, dtype=">i4"), np.zeros((2,) * 20),
    np.broadcast_to(np.arange(3), (4, 3)),
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype.str}{array.shape}")
def test_arrays(array: np.ndarray[Any, Any]) -> None:
    found = there_and_back({"array": array})["array"]
    assert type(found) is np.ndarray
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()
    assert found.flags.writeable


def test_the_bytes_of_a_large_array_are_not_copied() -> None:
    array = np.arange(1 << 20)
    document, (buffer,) = encode(array)
    assert np.shares_memory(np.frombuffer(buffer, "u1"), array)
    memory = bytearray(buffer)
    found = decode(document, [memory], dict)
    assert np.shares_memory(np.frombuffer(memory, "u1"), found)


def test_what_is_left_for_later_is_the_copy_of_a_large_array_that_needs_one() -> None:
    large = np.arange(1 << 18).reshape(512, 512)
    document, buffers = outline([large, large.T, large[::2], large[:16, ::2]])
    assert [type(one) is Deferred for one in buffers] == [False, False, True, False]
    made = [one.made() if isinstance(one, Deferred) else one for one in buffers]
    assert [len(one) for one in made] == [len(one) for one in buffers]
    found = decode(document, [bytearray(one) for one in made], dict)
    assert all(map(np.array_equal, found, [large, large.T, large[::2], large[:16, ::2]]))


@pytest.mark.parametrize(
    "value",
    [np.float32(1.5), np.int8(-1), np.bool_(True), np.datetime64("2020-01-01"), np.str_("x"),
     np.bytes_(b"y"), np.complex64(1j), np.str_("")],
)  # fmt: skip
def test_numpy_scalars(value: Any) -> None:
    found = there_and_back([value])[0]
    assert type(found) is type(value)
    assert found == value


class Colour(enum.Enum):
    RED = 1
    ALIAS = 1  # noqa: PIE796 - an alias


class Mode(enum.IntFlag):
    R = 4
    W = 2


class Word(enum.StrEnum):
    A = "a"


class Point(NamedTuple):
    x: int
    y: float = 0


@dataclass
class Box(Generic[T]):
    content: T


@dataclass(frozen=True, slots=True)
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)
    late: int = field(init=False, default=0)


@dataclass
class Careful:
    value: int

    def __post_init__(self) -> None:
        raise AssertionError("rebuilding runs no code of the class")

    @functools.cached_property
    def double(self) -> int:
        return self.value * 2


class Item(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    number: int = pydantic.Field(alias="n")
    kind: Colour = Colour.RED


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    known: int = 0


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Row(TypedDict):
    point: Point


Wrapped = NewType("Wrapped", Tree)


def everything() -> (
    dict[str, Colour | Mode | Word | Point | None]
    | Annotated[Box[Tree], "note"]
    | list[Page[Item]]
    | Row
    | Wrapped
    | tuple[Careful, ...]
    | Loose
    | Numbers
):
    raise NotImplementedError


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED, Mode.R | Mode.W, Mode(0), Word.A, Point(1, 2.5), [Point(1), Point(2)],
        Box(Tree("a", [Tree("b")])), {"x": Item(n=1), Colour.RED: 1}, Page[Item](items=[Item(n=2)]),
        Loose(known=1, other="x"), Loose(), Numbers([1, 2]), {"point": Point(1)},
    ],
    ids=repr,
)  # fmt: skip
def test_classes_of_the_project(value: Any) -> None:
    found = there_and_back(value, allowed_for(everything))
    assert same(found, value)
    if isinstance(value, pydantic.BaseModel):
        assert found.model_fields_set == value.model_fields_set


def test_rebuilding_a_dataclass_runs_none_of_its_code() -> None:
    made = object.__new__(Careful)
    made.value = 3
    assert made.double == 6
    found = there_and_back(made, allowed_for(everything))
    assert (type(found), found.value, found.double) == (Careful, 3, 6)


def test_a_class_nobody_named_is_refused_without_being_imported() -> None:
    @dataclass
    class Unknown:
        x: int

    Unknown.__module__, Unknown.__qualname__ = "antigravity", "Boom"
    document, _ = encode([Unknown(1)])
    with pytest.raises(NotAllowedError, match=r"antigravity\.Boom"):
        decode(document, [], lambda: allowed_for(everything))
    assert "antigravity" not in sys.modules


def test_a_subclass_of_an_annotated_class_is_refused() -> None:
    @dataclass
    class Wider(Box[int]):
        more: int = 0

    with pytest.raises(NotAllowedError, match="Wider"):
        there_and_back(Wider(1), allowed_for(everything))


def test_allowed_classes_bring_their_fields_classes_along() -> None:
    @allow_type
    @dataclass
    class Outer:
        inner: Inner | None = None

    def f() -> None: ...

    document, _ = encode(Outer())
    assert decode(document, [], lambda: allowed_for(f)) == Outer()


@dataclass
class Inner:
    x: int


def test_renaming_an_attribute_does_not_change_what_an_allowed_name_means(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point, allowed = Point, allowed_for(everything)
    monkeypatch.setitem(globals(), "Point", subprocess.Popen)
    assert type(there_and_back(point(1, 2), allowed)) is point
    assert type(there_and_back(point(1, 2), allowed_for(everything))) is point


def test_annotations_that_cannot_be_resolved_allow_nothing() -> None:
    def unresolvable() -> Missing: ...  # type: ignore[name-defined]  # noqa: F821

    def partly(argument: Missing) -> Point:  # type: ignore[name-defined]  # noqa: F821
        raise NotImplementedError

    with pytest.raises(NotAllowedError):
        there_and_back(Point(1), allowed_for(unresolvable))
    assert there_and_back(Point(1), allowed_for(partly)) == Point(1)


def test_a_scripts_classes_go_by_both_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inner, "__module__", "__main__")

    def f() -> Inner:
        raise NotImplementedError

    f.__annotations__["return"] = Inner
    names = allowed_for(f, script="pkg.main")
    assert names["pkg.main", "Inner"] is names["__main__", "Inner"] is Inner


class Sub(str):
    pass


class Struct(list[int]):
    pass


def _cycle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Sub("x"), "Sub"), (Struct(), "Struct"), (object(), "object"), (print, "builtin_function"),
        (int, "type"), (defaultdict(lambda: 1), "factory"), (1 << 1_000_000, "1,000,001 bits"),
        (_cycle(), "nested"), (np.array([object()]), "dtype object"), (np.zeros(1, "V4"), "dtype"),
        (np.zeros(1, "i4,f8"), "dtype"), (np.ma.array([1]), "MaskedArray"),
        (np.longdouble(1), "dtype"), (dt.time(1, tzinfo=type("Z", (dt.tzinfo,), {})()), "zone"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_what_has_no_place_is_refused_by_name(value: Any, named: str) -> None:
    with pytest.raises(UnencodableError, match=named):
        encode({"deep": [value]})


def test_attributes_that_are_no_fields_are_not_lost_silently() -> None:
    box = Box(1)
    box.extra = 2  # type: ignore[attr-defined]
    with pytest.raises(UnencodableError, match="'extra', which is not a field"):
        encode(box)


def test_encoding_imports_neither_numpy_nor_pydantic() -> None:
    code = (
        "import sys, agentix.wire.values.encode as e, agentix.wire.values.decode as d, decimal\n"
        "value = [1, 2.0, decimal.Decimal(3), {'x': (4,)}]\n"
        "assert d.decode(*e.encode(value), dict) == value\n"
        "print(*[m for m in ('numpy', 'pydantic', 'aiohttp', 'cloudpickle') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert (ran.stdout.strip(), ran.stderr) == ("", "")
