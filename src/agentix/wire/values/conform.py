"""Whether a value that arrived is what a field's annotation promises to the code that reads it."""

from __future__ import annotations

import collections
import collections.abc as abc
import sys
import types
import typing
from typing import Any, Final, Literal, Union, get_args, get_origin

_WRAPPERS: Final = (
    typing.Annotated,
    typing.ClassVar,
    typing.Final,
    typing.NotRequired,
    typing.Required,
)
_EACH: Final[dict[Any, type]] = {
    origin: origin
    for origin in (
        list,
        set,
        frozenset,
        collections.deque,
        abc.Collection,
        abc.Iterable,
        abc.MutableSequence,
        abc.MutableSet,
        abc.Sequence,
        abc.Set,
    )
}
_PAIRS: Final = (
    dict,
    collections.Counter,
    collections.OrderedDict,
    collections.defaultdict,
    abc.Mapping,
    abc.MutableMapping,
)


def conforms(value: Any, hint: Any) -> bool:
    """Tell whether a value fits an annotation; one that cannot be judged is fitted by anything."""
    if hint is Any:
        return True
    if hint is None:
        return value is None
    origin, args = get_origin(hint), get_args(hint)
    if origin is None:
        return _conforms_plain(value, hint)
    if origin is Union or origin is types.UnionType:
        return any(conforms(value, arg) for arg in args)
    if origin is Literal:
        return any(type(value) is type(arg) and value == arg for arg in args)
    if origin in _WRAPPERS:
        return conforms(value, args[0]) if args else True
    if origin is tuple:
        return isinstance(value, tuple) and _conforms_tuple(value, args)
    if origin in _EACH:
        return isinstance(value, origin) and all(conforms(item, args[0]) for item in value)
    if origin in _PAIRS:
        keys, values = args[0], args[1] if len(args) > 1 else int
        return isinstance(value, origin) and all(
            conforms(key, keys) and conforms(item, values) for key, item in value.items()
        )
    if hasattr(hint, "__value__"):
        return conforms(value, hint.__value__)
    return isinstance(value, origin) if isinstance(origin, type) else True


def _conforms_tuple(value: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
    if len(args) == 2 and args[1] is Ellipsis:
        return all(conforms(item, args[0]) for item in value)
    if any(get_origin(arg) is typing.Unpack for arg in args):
        return True
    return len(value) == len(args) and all(map(conforms, value, args))


def _conforms_plain(value: Any, hint: Any) -> bool:
    if isinstance(hint, typing.NewType):
        return conforms(value, hint.__supertype__)
    if hasattr(hint, "__value__"):
        return conforms(value, hint.__value__)
    if isinstance(hint, typing.TypeVar) and hint.__bound__ is not None:
        return conforms(value, hint.__bound__)
    if not isinstance(hint, type) or hint is object or getattr(hint, "_is_protocol", False):
        return True
    if typing.is_typeddict(hint):
        return isinstance(value, dict) and all(type(key) is str for key in value)
    return isinstance(value, hint) or _conforms_number(value, hint)


def _conforms_number(value: Any, hint: type) -> bool:
    """Numbers convert as type checkers say; numpy's own count as the builtin they stand for."""
    if hint is float:
        kinds = "fiu"
        plain: tuple[type, ...] = (int,)
    elif hint is complex:
        kinds = "cfiu"
        plain = (float, int)
    elif hint is int or hint is bool:
        kinds = "iu" if hint is int else "b"
        plain = ()
    else:
        return False
    if isinstance(value, plain):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in kinds
