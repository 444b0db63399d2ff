"""Classes of a project, one of each kind that a result may hold, and a value of all of them."""

from __future__ import annotations

import datetime as dt
import pathlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, Flag, StrEnum
from fractions import Fraction
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeAlias, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pydantic

T = TypeVar("T")
Json: TypeAlias = "dict[str, Json] | list[Json] | Sequence[Json] | str | int | None"


class Size(Enum):
    """An enum."""

    SMALL = 1
    LARGE = 2


class Word(StrEnum):
    """An enum of text."""

    A = "a"


class Access(Flag):
    """Flags."""

    R = 4
    W = 2


class Pair(NamedTuple, Generic[T]):
    """A named tuple, and generic."""

    a: T
    b: str


class Row(TypedDict, total=False):
    """A dict of known keys."""

    number: int
    pairs: list[Pair[int]]


@dataclass
class Base:
    """Inherited from."""

    name: str
    when: dt.datetime | None = None


@dataclass
class Order(Base, Generic[T]):
    """A dataclass."""

    content: T | None = None
    size: Size | None = None
    counts: dict[str, list[int]] = field(default_factory=dict)
    data: npt.NDArray[Any] | None = None
    json: Json = None
    each: Iterable[float] = ()
    row: Row | None = None
    sloppy: int = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Frozen:
    """Frozen and slotted."""

    x: int
    inner: Frozen | None = None
    late: str = field(default="", init=False)


class Cat(pydantic.BaseModel):
    """One of a discriminated union."""

    kind: Literal["cat"] = "cat"
    lives: Annotated[int, pydantic.Field(ge=0, alias="Lives")]
    _secret: int = pydantic.PrivateAttr(default=0)


class Dog(pydantic.BaseModel):
    """Another one."""

    model_config = pydantic.ConfigDict(extra="allow")
    kind: Literal["dog"] = "dog"
    tags: list[str] = []
    born: pydantic.AwareDatetime | None = None


class Home(pydantic.BaseModel):
    """A model of models."""

    pet: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]
    numbers: tuple[float, ...] = ()
    steps: Sequence[int] = ()
    price: Decimal = Decimal(0)
    word: Word = Word.A


class Numbers(pydantic.RootModel[list[int]]):
    """A model of one value."""


def known() -> Order[Frozen | Pair[int]] | Home | Numbers | list[Size | Access | Word]:
    """Have an annotation that leads to all of them."""
    raise NotImplementedError


def sample() -> dict[str, Any]:
    """Make values of all kinds."""
    cat = Cat.model_validate({"Lives": 9})
    cat._secret = 5
    berlin = ZoneInfo("Europe/Berlin")
    order: Order[Any] = Order(
        "n",
        dt.datetime(2021, 10, 31, 2, 30, tzinfo=berlin, fold=1),
        Frozen(1, Frozen(2)),
        Size.LARGE,
        {"k": [1, 2]},
        np.arange(6.0).reshape(2, 3),
        {"a": [1, ["x", None]]},
        range(3),
        {"number": 1, "pairs": [Pair(1, "b")]},
    )
    return {
        "plain": [None, True, 1, -1, 1 << 70, 1.5, "text", b"bytes", (1, 2), {"a": {1, 2}}],
        "containers": (
            frozenset({1, (2, 3)}),
            deque([1], 5),
            OrderedDict(b=1, a=2),
            Counter("aab"),
            defaultdict(list, {1: [2]}),
            {(1, 2): {}, None: ...},
        ),
        "scalars": [
            1j,
            Decimal("1.50"),
            Fraction(1, 3),
            range(1, 9, 2),
            slice(1, None, "x"),
            UUID(int=5),
            pathlib.Path("/a/b"),
            pathlib.PurePosixPath("c"),
        ],
        "times": [
            dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
            dt.date(2020, 2, 29),
            dt.time(1, tzinfo=dt.timezone(dt.timedelta(hours=-3), "odd")),
            dt.timedelta(-1, 5, 7),
        ],
        "arrays": [
            np.arange(4, dtype="<i4"),
            np.array([True, False]),
            np.asfortranarray(np.eye(2)),
            np.array(["ab", "ç"]),
            np.array(["2020-01-01"], "M8[D]"),
            np.float32(1.5),
            np.str_("x"),
            np.zeros((0, 3)),
        ],
        "dataclasses": [order, Pair(Frozen(3), "b")],
        "enums": [Size.SMALL, Access.R | Access.W, Word.A],
        "models": [
            Home(pet=cat, numbers=(1.0, float("nan"))),
            Home(pet=Dog(tags=["x"], other=[1])),
            Numbers([1, 2]),
        ],
        "large": [b"x" * 20_000, np.arange(5_000), bytearray(20_000)],
    }
