"""Which classes of a project may be rebuilt here: by annotation or by the user's word.

The sandbox only names a class; what a name means is decided here, from objects that this process
already holds. No name is imported or looked up as an attribute.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_type_hints
from weakref import WeakKeyDictionary

T = TypeVar("T")
Names: TypeAlias = Mapping[tuple[str, str], type]

_by_user: Final[set[type]] = set()
_by_function: Final[WeakKeyDictionary[Callable[..., Any], list[type]]] = WeakKeyDictionary()


def allow_type(cls: type[T]) -> type[T]:
    """Allow a class, and the classes its fields are annotated with, in the results of all calls.

    A dataclass, named tuple, enum or pydantic model that the called function's return annotation
    does not lead to is refused otherwise. Can be used as a decorator::

        @allow_type
        @dataclass
        class Score: ...

    Raises TypeError for what no result can hold, whether it is allowed or not.
    """
    reached = list(_reach(cls))
    if cls not in reached:
        raise TypeError(
            f"cannot allow {cls!r}: it is no dataclass, named tuple, enum or pydantic model"
        )
    _by_user.update(reached)
    return cls


def allowed_for(function: Callable[..., Any], *, script: str | None = None) -> Names:
    """Collect the classes that a result of this function may contain, by the names they may go by.

    ``script`` is the importable name of ``__main__``, by which a bundle knows a script's classes.
    """
    names: dict[tuple[str, str], type] = {}
    for cls in (*_reachable(function), *_by_user):
        names[cls.__module__, cls.__qualname__] = cls
        if cls.__module__ == "__main__" and script is not None:
            names[script, cls.__qualname__] = cls
    return names


def _reachable(function: Callable[..., Any]) -> list[type]:
    try:
        known = _by_function.get(function)
    except TypeError:  # no weak reference to it can be had
        return list(_reach(return_annotation(function)))
    if known is None:
        known = _by_function[function] = list(_reach(return_annotation(function)))
    return known


def return_annotation(function: Callable[..., Any]) -> Any:
    """Resolve what a function says it returns; ``None`` if it does not say, or not resolvably."""
    inner: Any = inspect.unwrap(function)
    try:
        # The return annotation alone: a parameter's may name what only a type checker imports.
        said = types.SimpleNamespace(__annotations__={"return": inner.__annotations__["return"]})
        return get_type_hints(said, inner.__globals__, include_extras=True)["return"]
    except (AttributeError, KeyError, NameError, SyntaxError, TypeError):
        return None


def _reach(hint: Any) -> Iterator[type]:
    """Walk everything that an annotation leads to."""
    seen: set[int] = set()
    todo: list[Any] = [hint]
    while todo:
        hint = todo.pop()
        if hint is None or id(hint) in seen:
            continue
        seen.add(id(hint))
        if isinstance(hint, list | tuple):
            todo.extend(hint)
            continue
        todo.extend(get_args(hint))
        todo.append(typing.get_origin(hint))
        todo.append(getattr(hint, "__value__", None))  # type X = …
        todo.append(getattr(hint, "__supertype__", None))  # NewType
        if isinstance(hint, typing.TypeVar):
            todo.extend((hint.__bound__, *hint.__constraints__))
        if isinstance(hint, type):
            if _has_fields(hint) or issubclass(hint, enum.Enum):
                yield hint
            todo.extend(field_types(hint).values())


def _has_fields(cls: type) -> bool:
    return (
        dataclasses.is_dataclass(cls)
        or hasattr(cls, "__pydantic_fields__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


def field_types(cls: type) -> dict[str, Any]:
    """Resolve the annotations of a class that has fields, as far as they can be resolved."""
    if not _has_fields(cls) and not typing.is_typeddict(cls):
        return {}
    if isinstance(models := getattr(cls, "__pydantic_fields__", None), dict) and not (
        dataclasses.is_dataclass(cls)
    ):
        return {name: field.annotation for name, field in models.items()}
    try:
        return get_type_hints(cls, include_extras=True)
    except (AttributeError, NameError, SyntaxError, TypeError):
        return {}
