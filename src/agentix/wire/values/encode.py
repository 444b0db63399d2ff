"""Encode a value of the closed data model; runs inside the sandbox."""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any, TypeAlias

import msgpack

from agentix.wire.errors import UnencodableError
from agentix.wire.frames import Buffer, Deferred
from agentix.wire.protocol import MAX_BUFFERS, MAX_DOCUMENT, MAX_ELEMENTS, OUT_OF_BAND
from agentix.wire.values import tags
from agentix.wire.values.bounds import check_elements
from agentix.wire.values.registered import registered
from agentix.wire.values.shapes import Shape, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable

Node: TypeAlias = Any
_SCALARS = frozenset({type(None), bool, int, float, str})


def encode(value: object) -> tuple[bytes, list[Buffer]]:
    """Encode a value as a document and its out-of-band buffers, or raise UnencodableError."""
    document, buffers = outline(value)
    return document, [one.made() if isinstance(one, Deferred) else one for one in buffers]


def outline(value: object) -> tuple[bytes, list[Buffer | Deferred]]:
    """Encode a value, but for copies of large arrays: those are left for later.

    All else is read at once, so that whoever holds the value may go on to change it.
    """
    try:
        encoder, document = _encode(value, _SCALARS)
    except OverflowError:
        # Somewhere among plain numbers is one of more than 64 bits: look at each.
        encoder, document = _encode(value, _SCALARS - {int})
    if len(document) > MAX_DOCUMENT:
        raise UnencodableError(
            f"a result of {len(document):,} bytes beside its large byte strings and arrays is more "
            f"than {MAX_DOCUMENT:,}; return bulk data as bytes or numpy arrays"
        )
    try:
        check_elements(document)
    except ValueError as exc:
        raise UnencodableError(
            f"a result of more than {MAX_ELEMENTS:,} values cannot be sent back; return bulk data "
            "as bytes or numpy arrays"
        ) from exc
    return document, encoder.buffers


def _encode(value: object, scalars: frozenset[type]) -> tuple[_Encoder, bytes]:
    encoder = _Encoder(scalars)
    try:
        root = encoder.node(value, 0)
    except RecursionError:
        raise UnencodableError("the result is nested too deep to be sent back") from None
    document = [encoder.classes, root]
    return encoder, msgpack.packb(document, strict_types=True, unicode_errors="surrogatepass")


class _Encoder:
    def __init__(self, scalars: frozenset[type]) -> None:
        self.scalars = scalars
        self.classes: list[Node] = []
        self.buffers: list[Buffer | Deferred] = []
        self._shapes: dict[type, tuple[int, Shape]] = {}

    def node(self, value: Any, depth: int) -> Node:
        cls = type(value)
        if cls in self.scalars:
            return value
        if depth > tags.MAX_DEPTH:
            raise UnencodableError(
                f"a result may be nested {tags.MAX_DEPTH} levels deep; this one is deeper, or "
                "contains itself"
            )
        if (special := _SPECIAL.get(cls)) is not None:
            return special(self, value, depth)
        return self._other(value, cls, depth)

    def nodes(self, values: list[Any], depth: int) -> list[Node]:
        """Encode elements; a list of scalars is its own encoding."""
        if {*map(type, values)} <= self.scalars:
            return values
        return [self.node(value, depth + 1) for value in values]

    def pairs(self, tag: int, mapping: dict[Any, Any], depth: int) -> list[Node]:
        """Encode a mapping as a column of keys and one of values."""
        return [tag, self.nodes(list(mapping), depth), self.nodes(list(mapping.values()), depth)]

    def aside(self, data: Buffer | Deferred) -> int | None:
        """Put bytes beside the document; ``None`` if they are better off in it."""
        if len(data) < OUT_OF_BAND or len(self.buffers) >= MAX_BUFFERS:
            return None
        self.buffers.append(data)
        return len(self.buffers) - 1

    def _class(self, cls: type) -> tuple[int, Shape] | None:
        """Enter a class into the table once."""
        known = self._shapes.get(cls)
        if known is None:
            shape = shape_of(cls)
            if shape is None:
                return None
            known = self._shapes[cls] = (len(self.classes), shape)
            self.classes.append([shape.kind, cls.__module__, cls.__qualname__, list(shape.fields)])
        return known

    def _other(self, value: Any, cls: type, depth: int) -> Node:
        if (rare := _rare(cls)) is not None:
            return rare(self, value, depth)
        if (known := registered(cls)) is not None:
            return [tags.REGISTERED, known.name, self.node(known.encode(value), depth + 1)]
        if (entry := self._class(cls)) is not None:
            index, shape = entry
            try:
                return shape.take(self, index, value, depth)
            except AttributeError as exc:
                raise UnencodableError(f"cannot send back this {_name(cls)}: {exc}") from exc
        if (numpy := sys.modules.get("numpy")) is not None:
            from agentix.wire.values import arrays

            if isinstance(value, numpy.ndarray):
                return arrays.encode_array(self, value)
            if isinstance(value, numpy.generic):
                return arrays.encode_scalar(value)
        raise UnencodableError(
            f"cannot send back a value of type {_name(cls)}; return plain data, a dataclass, a "
            "named tuple, an enum, a pydantic model or a numpy array, or register the type with "
            "agentix.results.register_type"
        )


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")


def _int(_: _Encoder, value: int, depth: int) -> Node:
    if -(1 << 63) <= value < (1 << 64):
        return value
    size = value.bit_length() // 8 + 1
    if size > tags.MAX_INT_BYTES:
        raise UnencodableError(f"cannot send back an integer of {value.bit_length():,} bits")
    return [tags.INT, value.to_bytes(size, "little", signed=True)]


def _bytes(encoder: _Encoder, value: bytes, depth: int) -> Node:
    index = encoder.aside(value)
    return value if index is None else [tags.BYTES, index]


def _bytearray(encoder: _Encoder, value: bytearray, depth: int) -> Node:
    index = encoder.aside(value)
    return [tags.BYTEARRAY, bytes(value) if index is None else index]


def _sequence(tag: int) -> Callable[[_Encoder, Any, int], Node]:
    return lambda encoder, value, depth: [tag, encoder.nodes(list(value), depth)]


def _list(encoder: _Encoder, value: list[Any], depth: int) -> Node:
    return [tags.LIST, encoder.nodes(value, depth)]


def _deque(encoder: _Encoder, value: deque[Any], depth: int) -> Node:
    return [tags.DEQUE, encoder.nodes(list(value), depth), value.maxlen]


def _mapping(tag: int) -> Callable[[_Encoder, Any, int], Node]:
    return lambda encoder, value, depth: encoder.pairs(tag, value, depth)


def _default_dict(encoder: _Encoder, value: defaultdict[Any, Any], depth: int) -> Node:
    factory = value.default_factory
    name = getattr(factory, "__name__", None)
    if factory is not None and tags.FACTORIES.get(name or "") is not factory:
        raise UnencodableError(
            f"cannot send back a defaultdict with the factory {factory!r}; return dict(value)"
        )
    return [*encoder.pairs(tags.DEFAULT_DICT, value, depth), name]


def _decimal(_: _Encoder, value: Any, depth: int) -> Node:
    text = str(value)
    if len(text) > tags.MAX_DECIMAL:
        raise UnencodableError(f"cannot send back a Decimal of {len(text):,} digits")
    return [tags.DECIMAL, text]


def _fraction(encoder: _Encoder, value: Any, depth: int) -> Node:
    parts = value.numerator, value.denominator
    if (bits := max(part.bit_length() for part in parts)) > tags.MAX_RATIO_BYTES * 8:
        raise UnencodableError(f"cannot send back a Fraction of {bits:,} bits")
    return [tags.FRACTION, *(_int(encoder, part, depth) for part in parts)]


def _range(encoder: _Encoder, value: range, depth: int) -> Node:
    return [tags.RANGE, *(_int(encoder, n, depth) for n in (value.start, value.stop, value.step))]


def _slice(encoder: _Encoder, value: slice, depth: int) -> Node:
    parts = (value.start, value.stop, value.step)
    return [tags.SLICE, *(encoder.node(part, depth + 1) for part in parts)]


def _zone(zone: dt.tzinfo | None) -> Node:
    if zone is None:
        return None
    if type(zone) is dt.timezone:
        offset = zone.utcoffset(None)
        name = zone.tzname(None)
        given = None if name == dt.timezone(offset).tzname(None) else name
        return [tags.FIXED_ZONE, offset.days, offset.seconds, offset.microseconds, given]
    key = getattr(zone, "key", None)
    if type(zone).__module__.partition(".")[0] == "zoneinfo" and type(key) is str:
        return [tags.NAMED_ZONE, key]
    raise UnencodableError(
        f"cannot send back a time zone of type {_name(type(zone))}; use zoneinfo's or timezone's"
    )


def _datetime(_: _Encoder, value: dt.datetime, depth: int) -> Node:
    day = [value.year, value.month, value.day]
    time = [value.hour, value.minute, value.second, value.microsecond, value.fold]
    return [tags.DATETIME, *day, *time, _zone(value.tzinfo)]


def _date(_: _Encoder, value: dt.date, depth: int) -> Node:
    return [tags.DATE, value.year, value.month, value.day]


def _time(_: _Encoder, value: dt.time, depth: int) -> Node:
    parts = [value.hour, value.minute, value.second, value.microsecond, value.fold]
    return [tags.TIME, *parts, _zone(value.tzinfo)]


def _timedelta(_: _Encoder, value: dt.timedelta, depth: int) -> Node:
    return [tags.TIMEDELTA, value.days, value.seconds, value.microseconds]


_SPECIAL: dict[type, Callable[[_Encoder, Any, int], Node]] = {
    int: _int,
    bytes: _bytes,
    bytearray: _bytearray,
    list: _list,
    tuple: _sequence(tags.TUPLE),
    set: _sequence(tags.SET),
    frozenset: _sequence(tags.FROZENSET),
    deque: _deque,
    dict: _mapping(tags.DICT),
    OrderedDict: _mapping(tags.ORDERED_DICT),
    Counter: _mapping(tags.COUNTER),
    defaultdict: _default_dict,
    complex: lambda _, value, depth: [tags.COMPLEX, value.real, value.imag],
    type(Ellipsis): lambda _, value, depth: [tags.ELLIPSIS],
    range: _range,
    slice: _slice,
    dt.datetime: _datetime,
    dt.date: _date,
    dt.time: _time,
    dt.timedelta: _timedelta,
}

# Types of modules that the worker need not import before the project does.
_RARE: dict[str, tuple[str, Callable[[_Encoder, Any, int], Node]]] = {
    "Decimal": ("decimal", _decimal),
    "Fraction": ("fractions", _fraction),
    "PosixPath": ("pathlib", lambda _, value, depth: [tags.PATH, str(value), False]),
    "PurePosixPath": ("pathlib", lambda _, value, depth: [tags.PATH, str(value), True]),
    "UUID": ("uuid", lambda _, value, depth: [tags.UUID, value.bytes]),
}


def _rare(cls: type) -> Callable[[_Encoder, Any, int], Node] | None:
    module, encode_one = _RARE.get(cls.__qualname__, ("", None))
    return encode_one if getattr(sys.modules.get(module), cls.__qualname__, None) is cls else None
