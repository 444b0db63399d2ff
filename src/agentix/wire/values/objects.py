"""Rebuild objects of the project's allowed classes, after checking that what arrived fits them."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import Any

from agentix.wire.errors import MalformedError, NotAllowedError
from agentix.wire.values import tags
from agentix.wire.values.allowed import Names, field_types
from agentix.wire.values.conform import conforms
from agentix.wire.values.shapes import Shape, shape_of


@dataclass(frozen=True, slots=True)
class Blueprint:
    """An allowed class, and how its objects are put together here."""

    cls: Any
    shape: Shape
    types: dict[str, Any]

    @property
    def kind(self) -> int:
        """What kind of class it is."""
        return self.shape.kind

    @property
    def name(self) -> str:
        """The class's own name."""
        name: str = self.cls.__qualname__
        return name

    def assemble(self, held: list[Any]) -> Any:
        """Make a dataclass object or a named tuple; like copying, this runs no __init__."""
        self._count(held)
        for field, value in zip(self.shape.fields, held, strict=True):
            if field not in self.types or conforms(value, self.types[field]):
                continue
            if value is not None or _default(self.cls, field) is not None:
                raise MalformedError(
                    f"{self.name}.{field} is {type(value).__qualname__} in the result, not "
                    f"{_described(self.types[field])} as it is annotated"
                )
        if self.kind == tags.NAMED_TUPLE:
            return tuple.__new__(self.cls, held)
        made = object.__new__(self.cls)
        for field, value in zip(self.shape.fields, held, strict=True):
            object.__setattr__(made, field, value)
        return made

    def validate(self, held: list[Any], given: list[Any], extra: Any) -> Any:
        """Make a pydantic model by its own validation."""
        self._count(held)
        if not {*given} <= {*self.shape.fields, *(extra or ())}:
            raise MalformedError(f"{self.name} has fields set that it does not have")
        fields = dict(zip(self.shape.fields, held, strict=True))
        if extra is not None:
            if type(extra) is not dict or self.cls.__pydantic_root_model__ or extra.keys() & fields:
                raise MalformedError(f"{self.name} has extra fields that are none")
            fields |= extra
        if self.cls.__pydantic_root_model__:
            model = self.cls.model_validate(fields["root"])
        else:
            model = self.cls.model_validate(fields, by_alias=False, by_name=True)
        object.__setattr__(model, "__pydantic_fields_set__", {*given})
        return model

    def member(self, name: Any) -> enum.Enum:
        """Look an enum's member up by its name."""
        found = self.cls.__members__.get(name) if type(name) is str else None
        if found is None:
            raise MalformedError(f"{self.name} has no member of the name in the result")
        member: enum.Enum = found
        return member

    def flag(self, value: int) -> enum.Flag:
        """Make a combination of flags."""
        found = self.cls(value)
        if not isinstance(found, enum.Flag):
            raise MalformedError(f"{self.name} has no flags for the value in the result")
        return found

    def _count(self, held: list[Any]) -> None:
        if len(held) != len(self.shape.fields):
            raise MalformedError(f"{self.name} has {len(held)} values in the result")


def blueprint(kind: Any, module: Any, qualname: Any, fields: Any, *, allowed: Names) -> Blueprint:
    """Find the class that the sandbox names among the allowed ones; check that it is the same."""
    if (
        type(module) is not str
        or type(qualname) is not str
        or type(fields) is not list
        or len(fields) > tags.MAX_FIELDS
        or len(module) + len(qualname) > 1024
    ):
        raise MalformedError("the result's table of classes is not one")
    cls = allowed.get((module, qualname))
    if cls is None:
        raise NotAllowedError(module, qualname)
    shape = shape_of(cls)
    if shape is None or shape.kind != kind or fields != list(shape.fields):
        raise MalformedError(
            f"{module}.{qualname} has other fields in the sandbox than here; the bundle was built "
            "from another version of the project: rebuild it with agentix build"
        )
    return Blueprint(cls, shape, field_types(cls))


def _default(cls: Any, name: str) -> Any:
    """Give a field's default; ``None`` as a default admits ``None`` whatever the annotation."""
    if dataclasses.is_dataclass(cls):
        fields = cls.__dataclass_fields__
        return fields[name].default
    return cls._field_defaults.get(name, dataclasses.MISSING)


def _described(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)
