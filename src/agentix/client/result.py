"""The result of a call as a value: ``match`` works on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from agentix.errors import RemoteCallError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ok(Generic[T]):
    """The call returned ``value``."""

    value: T


@dataclass(frozen=True, slots=True)
class Failed:
    """The call failed; ``error`` is what ``remote`` would have raised."""

    error: RemoteCallError


Result: TypeAlias = Ok[T] | Failed
