"""Whether a value that arrived is what a field's annotation promises to the code that reads it."""

from __future__ import annotations

import collections
import collections.abc as abc
import datetime as dt
import enum
import pathlib
import sys
import types
import typing
import uuid
from typing import Any, Final, Literal, Union, get_args, get_origin

from agentix.wire.values.annotations import alias_of, field_types

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
_CONTAINERS: Final = (list, tuple, set, frozenset, collections.deque, dict)
_SIMPLE: Final = frozenset(
    {type(None), bool, int, float, str, bytes, dt.datetime, dt.date, dt.time, dt.timedelta}
    | {uuid.UUID, pathlib.PosixPath, pathlib.PurePosixPath}
)


class Judge:
    """Judges values; one that cannot be judged by an annotation is fitted by anything.

    For a ``model`` the annotations have to be met more closely: pydantic converts what it is given,
    without a bound, such as a range of any length into a list.
    """

    def __init__(self, *, model: bool = False, raw_enums: bool = False) -> None:
        self._model = model
        self._raw_enums = raw_enums
        # Of containers, by the members of unions: each looked into once, however deep they nest.
        self._seen: dict[tuple[int, int], bool] = {}

    def forget(self) -> None:
        """Begin anew: the values judged so far may be gone, and others be where they were."""
        if self._seen:
            self._seen.clear()

    def fits(self, value: Any, hint: Any) -> bool:
        """Tell whether a value fits an annotation."""
        if hint is Any or type(value) is hint:
            return True
        if hint is None:
            return value is None
        while (meant := alias_of(hint)) is not None:
            hint = meant
        origin, args = get_origin(hint), get_args(hint)
        if origin is None or not (args or hint == tuple[()]):
            return self._fits_plain(value, origin or hint)
        if origin is Union or origin is types.UnionType:
            # No generators here: each would take from the depth to which values may nest.
            for arg in args:  # noqa: SIM110
                if self._fits_one_of(value, arg):
                    return True
            return False
        if origin is Literal:
            return any(type(value) is type(arg) and value == arg for arg in args)
        if origin in _WRAPPERS:
            return self.fits(value, args[0])
        if origin is tuple:
            return isinstance(value, tuple) and self._fits_tuple(value, args)
        if origin in _EACH:
            if not isinstance(value, origin):
                return False
            if isinstance(value, _CONTAINERS):
                return self._all_fit(value, args[0])
            return self._fits_items(value, args[0])
        if origin in _PAIRS:
            keys, values = args[0], args[1] if len(args) > 1 else int
            return (
                isinstance(value, origin)
                and self._all_fit(value, keys)
                and self._all_fit(value.values(), values)
            )
        return self._fits_plain(value, origin)

    def _fits_one_of(self, value: Any, arg: Any) -> bool:
        if not isinstance(value, _CONTAINERS):
            return self.fits(value, arg)
        key = (id(value), id(arg))
        if (known := self._seen.get(key)) is None:
            known = self._seen[key] = self.fits(value, arg)
        return known

    def _fits_items(self, value: Any, arg: Any) -> bool:
        if isinstance(value, str):  # of which each letter is such a sequence again
            return not value or self.fits("", arg)
        if isinstance(value, bytes | bytearray):
            return not value or self.fits(0, arg)
        # A range, say, or an array.
        return not self._model and (type(value) is not range or self.fits(0, arg))

    def _all_fit(self, values: abc.Iterable[Any], hint: Any) -> bool:
        if _decides_by_type(hint):
            if {*map(type, values)} == {hint}:
                return True
            values = {type(value): value for value in values}.values()
        for value in values:  # noqa: SIM110
            if not self.fits(value, hint):
                return False
        return True

    def _fits_tuple(self, value: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        if len(args) == 2 and args[1] is Ellipsis:
            return self._all_fit(value, args[0])
        if any(get_origin(arg) is typing.Unpack for arg in args):
            return True
        return len(value) == len(args) and all(map(self.fits, value, args))

    def _fits_plain(self, value: Any, hint: Any) -> bool:
        if isinstance(hint, typing.NewType):
            return self.fits(value, hint.__supertype__)
        if isinstance(hint, typing.TypeVar):
            if hint.__constraints__:
                return any(self.fits(value, one) for one in hint.__constraints__)
            return hint.__bound__ is None or self.fits(value, hint.__bound__)
        if not isinstance(hint, type) or hint is object or getattr(hint, "_is_protocol", False):
            return True
        if typing.is_typeddict(hint):
            return self._fits_typed_dict(value, hint)
        if isinstance(value, hint) or _fits_number(value, hint):
            return True
        if issubclass(hint, enum.Enum):
            return self._raw_enums and any(
                type(value) is type(member.value) and value == member.value for member in hint
            )
        # pydantic's AwareDatetime, EmailStr and the like, which stand for something else.
        return (
            hasattr(hint, "__get_pydantic_core_schema__")
            and not hasattr(hint, "__pydantic_fields__")
            and type(value) in _SIMPLE
        )

    def _fits_typed_dict(self, value: Any, hint: type) -> bool:
        if not isinstance(value, dict) or not all(type(key) is str for key in value):
            return False
        hints = field_types(hint)
        needed: frozenset[str] = hint.__required_keys__  # type: ignore[attr-defined]
        return needed <= value.keys() and all(
            self.fits(value[name], hints[name]) for name in hints.keys() & value.keys()
        )


def conforms(value: Any, hint: Any) -> bool:
    """Tell whether a value fits an annotation."""
    return Judge().fits(value, hint)


def _decides_by_type(hint: Any) -> bool:
    """Tell whether values of the same type fit it all or not at all."""
    return hint in (int, float, str, bytes, bool, types.NoneType) or (
        get_origin(hint) in (Union, types.UnionType) and all(map(_decides_by_type, get_args(hint)))
    )


def _fits_number(value: Any, hint: type) -> bool:
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
