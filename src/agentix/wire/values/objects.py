"""Rebuild objects of the project's allowed classes, after checking that what arrived fits them."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentix.wire.errors import MalformedError, NotAllowedError
from agentix.wire.values import tags
from agentix.wire.values.annotations import field_types
from agentix.wire.values.conform import Judge
from agentix.wire.values.shapes import Shape, shape_of

if TYPE_CHECKING:
    from agentix.wire.values.allowed import Names


@dataclass(frozen=True, slots=True)
class Blueprint:
    """An allowed class, and how its objects are put together here."""

    cls: Any
    shape: Shape
    types: dict[str, Any]
    hints: tuple[Any, ...]
    """Those of the fields, in order."""
    judge: Judge

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
        self._check(held)
        if self.kind == tags.NAMED_TUPLE:
            return tuple.__new__(self.cls, held)
        made = object.__new__(self.cls)
        for field, value in zip(self.shape.fields, held, strict=True):
            object.__setattr__(made, field, value)
        return made

    def validate(self, held: list[Any], given: list[Any], extra: Any, private: Any) -> Any:
        """Make a pydantic model by its own validation, which has to find nothing to change."""
        self._check(held)
        own = fields = dict(zip(self.shape.fields, held, strict=True))
        if extra is not None:
            self._check_extra(extra)
            fields = fields | extra
        if not {*given} <= fields.keys():
            raise MalformedError(f"{self.name} has fields set that it does not have")
        if self.cls.__pydantic_root_model__:
            model = self.cls.model_validate(fields["root"])
        else:
            model = self.cls.model_validate(fields, by_alias=False, by_name=True)
        there = model.__dict__
        made = there if len(there) == len(own) else {name: there[name] for name in own}
        if not (same(made, own) and same(model.__pydantic_extra__, extra)):
            raise MalformedError(
                f"{self.name} is another one after it was validated here; its validators have to "
                "leave alone what they have made"
            )
        object.__setattr__(model, "__pydantic_fields_set__", {*given})
        if private is not None or self.cls.__private_attributes__:
            self._check_private(private)
            object.__setattr__(model, "__pydantic_private__", private)
        return model

    def _check(self, held: list[Any]) -> None:
        """Check that these can be the values of the fields."""
        if len(held) != len(self.shape.fields):
            raise MalformedError(f"{self.name} has {len(held)} values in the result")
        fits = self.judge.fits
        for number, (value, hint) in enumerate(zip(held, self.hints, strict=True)):
            if type(value) is hint or fits(value, hint):
                continue
            field = self.shape.fields[number]
            if value is not None or self._default(field) is not None:
                raise self._unfit(field, value)
        self.judge.forget()

    def _check_extra(self, extra: Any) -> None:
        if (
            type(extra) is not dict
            or self.cls.__pydantic_root_model__
            or extra.keys() & {*self.shape.fields}
            or not self.judge.fits(extra, self.types.get("__pydantic_extra__", Any))
        ):
            raise MalformedError(f"{self.name} has extra fields that are none")

    def _check_private(self, private: Any) -> None:
        declared = self.cls.__private_attributes__
        if type(private) is not dict or not private.keys() <= declared.keys():
            raise MalformedError(f"{self.name} has private attributes that are none")
        for name, value in private.items():
            if not self.judge.fits(value, self.types.get(name, Any)) and (
                value is not None or declared[name].default is not None
            ):
                raise self._unfit(name, value)

    def _default(self, field: str) -> Any:
        """Give a field's default; ``None`` as a default admits ``None`` whatever the annotation."""
        if self.kind == tags.DATACLASS:
            return self.cls.__dataclass_fields__[field].default
        if self.kind == tags.PYDANTIC:
            return self.cls.__pydantic_fields__[field].default
        return self.cls._field_defaults.get(field, dataclasses.MISSING)

    def _unfit(self, field: str, value: Any) -> MalformedError:
        hint = self.types[field]
        said = hint.__qualname__ if isinstance(hint, type) else str(hint)[:200]
        return MalformedError(
            f"{self.name}.{field} is {type(value).__qualname__} in the result, not {said} as it is "
            "annotated"
        )

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
    if shape.kind == tags.PYDANTIC:
        config = cls.model_config  # type: ignore[attr-defined]
        judge = Judge(model=True, raw_enums=bool(config.get("use_enum_values")))
    else:
        judge = Judge()
    types = field_types(cls)
    return Blueprint(cls, shape, types, tuple(types.get(name, Any) for name in fields), judge)


def same(left: Any, right: Any) -> bool:
    """Compare values as equality does, but for what is equal to nothing, such as NaN."""
    try:
        if left is right or left == right or (left != left and right != right):
            return True
    except Exception:  # of arrays, say; a validator gives those on as they are
        if type(left) not in _CONTAINERS:
            return type(left) is type(right)
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return False


_CONTAINERS = (list, tuple, dict)
