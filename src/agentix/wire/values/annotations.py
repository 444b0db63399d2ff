"""What annotations say, as far as that can be found out at run time.

A name may be imported for type checkers only, or be a forward reference to what is not there yet:
then that annotation says nothing, and those beside it say what they say.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import sys
import types
import typing
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_known: Final[WeakKeyDictionary[type, dict[str, Any]]] = WeakKeyDictionary()


def return_annotation(function: Callable[..., Any]) -> Any:
    """Resolve what a function says it returns; ``None`` if it does not say, or not resolvably."""
    try:
        inner: Any = inspect.unwrap(function)
        said = inner.__annotations__["return"]
        # Not those of its parameters, which may name what only a type checker imports.
        return _resolve(said, inner.__globals__, _parameters(inner))
    except Exception:  # whatever evaluating an annotation raises
        return None


def has_fields(cls: type) -> bool:
    """Tell whether a class is a dataclass, a pydantic model or a named tuple."""
    return (
        dataclasses.is_dataclass(cls)
        or hasattr(cls, "__pydantic_fields__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


def field_types(cls: type) -> dict[str, Any]:
    """Resolve the annotations of a class that has fields; those that cannot be are missing."""
    if not has_fields(cls) and not typing.is_typeddict(cls):
        return {}
    found = _known.get(cls)
    if found is None:
        try:
            found = _of_model(cls) if _is_model(cls) else get_type_hints(cls, include_extras=True)
        except Exception:  # whatever evaluating an annotation raises
            return dict(_one_by_one(cls))  # perhaps there is more to be found later
        _known[cls] = found
    return found


def _is_model(cls: type) -> bool:
    return hasattr(cls, "__pydantic_fields__") and not dataclasses.is_dataclass(cls)


def _of_model(cls: Any) -> dict[str, Any]:
    if not cls.__pydantic_complete__:
        cls.model_rebuild()
    found = dict(_one_by_one(cls))  # those of private attributes
    return found | {name: field.annotation for name, field in cls.__pydantic_fields__.items()}


def _one_by_one(cls: type) -> Iterator[tuple[str, Any]]:
    for base in reversed(cls.__mro__):
        said: dict[str, Any] = {}
        with contextlib.suppress(Exception):
            said = inspect.get_annotations(base)
        module = vars(sys.modules.get(base.__module__, types))
        names = {**_parameters(base), **vars(base)}
        for name, hint in said.items():
            with contextlib.suppress(Exception):
                yield name, _resolve(hint, module, names)


def _parameters(owner: Any) -> dict[str, Any]:
    """Name the type parameters that a function or class declares (PEP 695)."""
    return {one.__name__: one for one in getattr(owner, "__type_params__", ())}


def _resolve(hint: Any, names: dict[str, Any], more: dict[str, Any]) -> Any:
    said = types.SimpleNamespace(__annotations__={"it": hint})
    return get_type_hints(said, names, more, include_extras=True)["it"]


def alias_of(hint: Any) -> Any:
    """Give what an alias (``type X = …``) stands for; ``None`` if it is none, or unresolvable."""
    try:
        return getattr(hint, "__value__", None)
    except Exception:  # it is evaluated only now
        return None


def reach(hint: Any) -> Iterator[type]:
    """Walk the classes that an annotation leads to, through their fields too."""
    seen: dict[int, Any] = {}  # holding on to them, so that no other one gets the same id
    todo: list[Any] = [hint]
    while todo:
        hint = todo.pop()
        if hint is None or id(hint) in seen:
            continue
        seen[id(hint)] = hint
        if isinstance(hint, list | tuple):
            todo.extend(hint)
            continue
        todo.extend(get_args(hint))
        todo.append(typing.get_origin(hint))
        todo.append(alias_of(hint))
        todo.append(getattr(hint, "__supertype__", None))  # NewType
        if isinstance(hint, typing.TypeVar):
            todo.extend((hint.__bound__, *hint.__constraints__))
        if isinstance(hint, type):
            yield hint
            todo.extend(field_types(hint).values())
            generic = getattr(hint, "__pydantic_generic_metadata__", None) or {}
            todo.extend((generic.get("origin"), generic.get("args")))
