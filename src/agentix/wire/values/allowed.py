"""Which classes of a project may be rebuilt here: by annotation or by the user's word.

The sandbox only names a class; what a name means is decided here, from objects that this process
already holds. No name is imported or looked up as an attribute.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from agentix.wire.values.annotations import reach, return_annotation
from agentix.wire.values.shapes import shape_of

T = TypeVar("T")
Names: TypeAlias = Mapping[tuple[str, str], type]

_by_user: Final[dict[type, None]] = {}
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
    given: object = cls  # whatever type checkers have let through
    if not isinstance(given, type) or shape_of(given) is None:
        raise TypeError(
            f"cannot allow {cls!r}: it is no dataclass, named tuple, enum or pydantic model"
        )
    _by_user[cls] = None
    _all_by_user.cache_clear()
    return cls


@functools.cache
def _all_by_user() -> list[type]:
    # Not before they are asked for: a field may be annotated with a class further down.
    return _shaped(list(_by_user))


def allowed_for(function: Callable[..., Any], *, script: str | None = None) -> Names:
    """Collect the classes that a result of this function may contain, by the names they may go by.

    ``script`` is the importable name of ``__main__``, by which a bundle knows a script's classes.
    """
    names: dict[tuple[str, str], type] = {}
    for cls in (*_reachable(function), *_all_by_user()):
        names[cls.__module__, cls.__qualname__] = cls
        if cls.__module__ == "__main__" and script is not None:
            names[script, cls.__qualname__] = cls
    return names


def _reachable(function: Callable[..., Any]) -> list[type]:
    try:
        known = _by_function.get(function)
    except TypeError:  # no weak reference to it can be had
        return _shaped(return_annotation(function))
    if known is None:
        known = _by_function[function] = _shaped(return_annotation(function))
    return known


def _shaped(hint: Any) -> list[type]:
    return [cls for cls in reach(hint) if shape_of(cls) is not None]
