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
from typing import TYPE_CHECKING, Any, Final, Protocol

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


@dataclass(frozen=True, slots=True)
class Shape:
    """The kind of a class and the names of its fields, in order."""

    kind: int
    fields: tuple[str, ...] = ()

    def take(self, encoder: Encoder, index: int, value: Any, depth: int) -> Node:
        """Take an object of this shape apart."""
        if self.kind == tags.NAMED_TUPLE:
            _refuse_undeclared(value, ())
            held = list(tuple.__iter__(value))
            if len(held) != len(self.fields):
                raise UnencodableError(
                    f"cannot send back a {type(value).__qualname__} of {len(held)} values; it has "
                    f"{len(self.fields)} names for them"
                )
            return [tags.OBJECT, index, encoder.nodes(held, depth)]
        if self.kind == tags.DATACLASS:
            _refuse_undeclared(value, self.fields)
            held = [getattr(value, name) for name in self.fields]
            return [tags.OBJECT, index, encoder.nodes(held, depth)]
        if self.kind == tags.PYDANTIC:
            _refuse_undeclared(value, self.fields)
            there = value.__dict__
            try:
                held = [there[name] for name in self.fields]
            except KeyError as exc:
                raise UnencodableError(
                    f"cannot send back this {type(value).__qualname__}: its field {exc} is not set"
                ) from None
            given = sorted(value.__pydantic_fields_set__)
            extra, private = value.__pydantic_extra__, value.__pydantic_private__
            if extra is not None:
                extra = encoder.node(extra, depth + 1)
            if private is not None:
                private = encoder.node(private, depth + 1)
            return [tags.MODEL, index, encoder.nodes(held, depth), given, extra, private]
        if isinstance(value, enum.Flag):
            return [tags.FLAG, index, encoder.node(value._value_, depth + 1)]
        return [tags.MEMBER, index, value._name_]


def _refuse_undeclared(value: Any, names: tuple[str, ...]) -> None:
    """Refuse what the other side could not be given back: attributes that are not fields."""
    there = getattr(value, "__dict__", None)
    if not there or there.keys() <= {*names}:
        return
    for name in there.keys() - {*names}:
        cached = isinstance(getattr(type(value), name, None), functools.cached_property)
        if not cached and not name.startswith("__"):  # some of pydantic's own lie there, too
            raise UnencodableError(
                f"cannot send back a {type(value).__qualname__} with the attribute {name!r}, which "
                "is not a field; declare it as one or leave it out"
            )


def shape_of(cls: type) -> Shape | None:
    """Describe a class of the project; ``None`` if the data model has no place for it."""
    if issubclass(cls, enum.Enum):
        return Shape(tags.ENUM)
    if issubclass(cls, tuple):
        names = getattr(cls, "_fields", None)
        if type(names) is not tuple or _inherits_data(cls, tuple):
            return None
        return Shape(tags.NAMED_TUPLE, names)
    if dataclasses.is_dataclass(cls):
        if _inherits_data(cls, object):
            return None
        return Shape(tags.DATACLASS, tuple(field.name for field in dataclasses.fields(cls)))
    # pydantic is asked only where the project has imported it; it is never imported for this.
    if (pydantic := sys.modules.get("pydantic")) is not None and issubclass(
        cls, pydantic.BaseModel
    ):
        return Shape(tags.PYDANTIC, tuple(cls.__pydantic_fields__))  # type: ignore[attr-defined]
    return None


def _inherits_data(cls: type, plain: type) -> bool:
    """Tell whether objects hold what is in no field, as those of a subclass of ``list`` do."""
    return next(base for base in cls.__mro__ if not base.__flags__ & _MADE_IN_PYTHON) is not plain


_MADE_IN_PYTHON: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE
