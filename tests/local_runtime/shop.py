"""Results of a project's own classes, and of numpy's."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def object_array() -> Any:
    """Return an array that may hold anything."""
    return np.array([object()])


async def transposed(rows: int) -> Any:
    """Return an array whose bytes do not lie in the order that they are sent in."""
    return np.arange(rows * 1000).reshape(rows, 1000).T[:, ::2]


async def transposes(rows: int, count: int) -> AsyncIterator[Any]:
    """Yield such arrays."""
    for _ in range(count):
        yield await transposed(rows)


class Colour(enum.Enum):
    """An enum."""

    RED = 1
    BLUE = 2


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class Order:
    """A dataclass with everything in it."""

    name: str
    points: list[Point] = field(default_factory=list)
    colour: Colour | None = None
    data: np.ndarray[Any, Any] | None = None


class Model(BaseModel):
    """A pydantic model."""

    count: int
    order_names: set[str] = set()


@dataclass
class Secret:
    """A dataclass that no annotation mentions."""

    value: int


def order(name: str) -> Order:
    """Return a dataclass."""
    return Order(name, [Point(1, 2.0)], Colour.BLUE, np.arange(100_000.0))


def models() -> dict[str, list[Model]]:
    """Return models in containers."""
    return {"all": [Model(count=1, order_names={"a", "b"})]}


def secret() -> Any:
    """Return a class that is not annotated."""
    return Secret(7)


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    """Return arrays of many kinds."""
    return {
        "float": np.arange(1_000_000, dtype="f8").reshape(1000, 1000),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "bool": np.array([True, False]),
        "int8": np.array([-1, 1], "i1"),
        "bytes": np.array([b"ab", b"c"]),
        "text": np.array(["ab", "ç"]),
        "time": np.array(["2020-01-01"], "M8[ns]"),
        "scalar": np.array(5),
        "empty": np.zeros((0, 3)),
        "strided": np.arange(10)[::2],
        "big-endian": np.arange(3, dtype=">i4"),
    }


def writable(array: np.ndarray[Any, Any]) -> float:
    """Write to an argument."""
    array[0] = 42.0
    return float(array.sum())
