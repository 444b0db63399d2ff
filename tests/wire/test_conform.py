"""Fields are checked against their annotations as a type checker would, and no more strictly."""

from __future__ import annotations

import typing
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, NewType, Optional, Protocol, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from agentix.wire.values.conform import conforms

T = TypeVar("T")
Bounded = TypeVar("Bounded", bound=int)
Id = NewType("Id", str)


class Speaks(Protocol):
    def speak(self) -> None: ...


class Kind(StrEnum):
    A = "a"


class Row(TypedDict):
    x: int


class Pair(NamedTuple):
    a: int


FITS: list[tuple[Any, Any]] = [
    (1, int), (True, int), (1, float), (1, complex), (1.5, float), (None, None), (None, Any),
    (1, object), (1, T), (1, Bounded), ("x", Id), ("x", str), (Kind.A, str), (Kind.A, Kind),
    ([1, "x"], list), ([1], list[int]), ([], list[int]), ((1, "x"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]), ((), tuple[()]),
    ({1}, set[int]), (frozenset({1}), frozenset[int]),
    ({"a": [1]}, dict[str, list[int]]), ({"a": 1}, Mapping[str, int]), ([1], Sequence[int]),
    ((1,), Sequence[int]), (deque([1]), deque[int]), (Counter("a"), Counter[str]),
    (None, Optional[int]), (1, Any), (1, int | str),  # noqa: UP045
    ("x", typing.Union[int, str]),  # noqa: UP007
    ("a", Literal["a", 1]),
    (1, typing.Annotated[int, "note"]), (1, typing.Final[int]), ({"x": 1}, Row), (Pair(1), Pair),
    (1, "Unresolved"), (1, Speaks), (np.zeros(1), np.ndarray),
    (np.zeros(1), npt.NDArray[np.float64]), (np.float32(1), float), (np.int64(1), int),
    (np.bool_(True), bool), (Path("x"), Path), (Path("x"), PurePosixPath),
    (1, typing.ClassVar[int]),
]  # fmt: skip
DOES_NOT: list[tuple[Any, Any]] = [
    ("1", int), (1, str), (1.5, int), (None, int), (b"x", str), ([1], list[str]), ((1,), list),
    ((1, 2), tuple[int]), ((1,), tuple[()]), (("x",), tuple[int, ...]), ([1], set),
    ({"a": "b"}, dict[str, int]), ({1: 1}, dict[str, int]), ("x", Optional[int]),  # noqa: UP045
    (b"", int | str),
    ("b", Literal["a", 1]), (True, Literal[1]), (1, Kind), ([1], Row), ({1: 1}, Row),
    ("x", Bounded),
    (1, Callable[[], int]), (1, Id), ([1], npt.NDArray[np.float64]),
    (np.float64(1), int),
    ("x", Path), (1, None), ((1,), Pair), (np.str_("x"), float),
]  # fmt: skip


@pytest.mark.parametrize(("value", "hint"), FITS, ids=repr)
def test_what_fits(value: Any, hint: Any) -> None:
    assert conforms(value, hint)


@pytest.mark.parametrize(("value", "hint"), DOES_NOT, ids=repr)
def test_what_does_not(value: Any, hint: Any) -> None:
    assert not conforms(value, hint)
