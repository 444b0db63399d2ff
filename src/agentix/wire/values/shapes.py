"""What the classes of a project look like to the codec: their kind and their fields.

Both sides use it: the sandbox to take objects apart, the host to check that the class which it
allows is the class that the sandbox means.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agentix.wire.errors import UnencodableError
from agentix.wire.values import tags

if TYPE_CHECKING:
    from agentix.wire.values.encode import Node


class Encoder(Protocol):
    """What a shape asks of the encoder to take an object apart."""

    def node(self, value: Any, depth: int) -> Node:
        """Encode one value."""

    def nodes(self, values: list[Any], depth: int) -> list[Node]:
        """Encode a list of values."""

    def pairs(self, tag: int, mapping: dict[Any, Any], depth: int) -> list[Node]:
        """Encode a mapping."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The kind of a class and the names of its fields, in order."""

    kind: int
    fields: tuple[str, ...] = ()

    def take(self, encoder: Encoder, index: int, value: Any, depth: int) -> Node:
        """Take an object of this shape apart."""
        if self.kind == tags.NAMED_TUPLE:
            return [tags.OBJECT, index, encoder.nodes(list(value), depth)]
        if self.kind == tags.DATACLASS:
            _refuse_undeclared(value, self.fields)
            held = [getattr(value, name) for name in self.fields]
            return [tags.OBJECT, index, encoder.nodes(held, depth)]
        if self.kind == tags.PYDANTIC:
            held = [value.__dict__[name] for name in self.fields]
            extra = value.__pydantic_extra__
            more = None if extra is None else encoder.pairs(tags.DICT, extra, depth)
            given = sorted(value.__pydantic_fields_set__)
            return [tags.MODEL, index, encoder.nodes(held, depth), given, more]
        if isinstance(value, enum.Flag):
            return [tags.FLAG, index, encoder.node(value.value, depth + 1)]
        return [tags.MEMBER, index, value.name]


def _refuse_undeclared(value: Any, names: tuple[str, ...]) -> None:
    """Refuse what the other side could not be given back: attributes that are not fields."""
    if not hasattr(value, "__dict__"):
        return
    for name in value.__dict__.keys() - set(names):
        if not isinstance(getattr(type(value), name, None), functools.cached_property):
            raise UnencodableError(
                f"cannot send back a {type(value).__qualname__} with the attribute {name!r}, which "
                "is not a field; declare it as one (field(init=False)) or leave it out"
            )


def shape_of(cls: type) -> Shape | None:
    """Describe a class of the project; ``None`` if the data model has no place for it."""
    if issubclass(cls, enum.Enum):
        return Shape(tags.ENUM)
    if dataclasses.is_dataclass(cls):
        return Shape(tags.DATACLASS, tuple(field.name for field in dataclasses.fields(cls)))
    if issubclass(cls, tuple) and cls.__bases__ == (tuple,) and hasattr(cls, "_fields"):
        return Shape(tags.NAMED_TUPLE, tuple(cls._fields))
    # pydantic is asked only where the project has imported it; it is never imported for this.
    if (pydantic := sys.modules.get("pydantic")) is not None and issubclass(
        cls, pydantic.BaseModel
    ):
        return Shape(tags.PYDANTIC, tuple(cls.__pydantic_fields__))  # type: ignore[attr-defined]
    return None
