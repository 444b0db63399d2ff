"""Decode a value that a sandbox sent; runs on the host, and trusts nothing.

Every way in which the bytes can be wrong ends in one MalformedError, in time and memory that their
length bounds. A class that is not allowed ends in NotAllowedError, and is not imported.
"""

from __future__ import annotations

import datetime as dt
import pathlib
import re
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack

from agentix.wire.errors import MalformedError, NotAllowedError
from agentix.wire.values import arrays, tags
from agentix.wire.values.bounds import check_elements
from agentix.wire.values.objects import Blueprint, blueprint
from agentix.wire.values.registered import rebuild

if TYPE_CHECKING:
    import enum
    from collections.abc import Callable, Sequence

    from agentix.wire.frames import Buffer
    from agentix.wire.values.allowed import Names

_THEMSELVES = frozenset({type(None), bool, int, float, str, bytes})
_HASHED_AT_RANDOM = frozenset({str, bytes, bool, type(None)})
_FEW = 32
"""Keys with the same hash that do not take long whatever they are."""


def decode(document: Buffer, buffers: Sequence[Buffer], allowed: Callable[[], Names]) -> Any:
    """Rebuild a value from its document and buffers.

    ``allowed`` is asked for the classes that may be rebuilt, if the document has any. Raises
    :class:`MalformedError` for bytes that are no valid value and :class:`NotAllowedError` for a
    class that is not among the allowed ones.
    """
    try:
        check_elements(document)
        # CPython 3.12 keeps a map's keys for ever, so not even one is read.
        table, root = msgpack.unpackb(document, max_map_len=0, unicode_errors="surrogatepass")
        decoder = _Decoder(_classes(table, allowed), list(buffers))
        value = decoder.node(root, 0)
    except (MalformedError, NotAllowedError):
        raise
    except Exception as exc:
        # What constructors, numpy, msgpack and the project's own validators raise.
        raise MalformedError(f"the result cannot be decoded: {_line(exc)}") from None
    if any(buffer is not None for buffer in decoder.buffers):
        raise MalformedError("the result has buffers that nothing in it refers to")
    return value


def _line(exc: Any) -> str:
    """Tell an error in one line of bounded length, in bounded time."""
    try:
        if not hasattr(exc, "error_count"):
            said = str(exc)
        elif (count := exc.error_count()) > _MOST_ERRORS:  # pydantic takes minutes for a million
            said = f"{count:,} values are not valid"
        else:
            errors = exc.errors(include_url=False, include_context=False, include_input=False)
            said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in errors)
    except Exception:  # its own code may be asked
        said = "(which cannot be told)"
    return " ".join(f"{type(exc).__name__}: {said}"[:300].split())


_MOST_ERRORS = 10


def _classes(table: Any, allowed: Callable[[], Names]) -> list[Blueprint]:
    if type(table) is not list or len(table) > tags.MAX_CLASSES:
        raise MalformedError("the result has no table of classes")
    if not table:
        return []
    names = allowed()
    return [blueprint(*entry, allowed=names) for entry in table]


@dataclass(slots=True)
class _Decoder:
    classes: list[Blueprint]
    buffers: list[Buffer | None]
    spare: int = 1 << 17
    """Comparisons of keys that may still be made because of equal hashes."""

    def node(self, node: Any, depth: int) -> Any:
        kind = type(node)
        if kind in _THEMSELVES:
            return node
        if kind is not list:
            raise MalformedError(f"the result holds a {kind.__name__} without a tag")
        if depth > tags.MAX_DEPTH:
            raise MalformedError(f"the result is nested more than {tags.MAX_DEPTH} levels deep")
        tag, *fields = node
        if type(tag) is not int or (build := _BUILD.get(tag)) is None:
            raise MalformedError(f"the result holds the unknown tag {str(tag)[:20]!r}")
        return build(self, depth, *fields)

    def nodes(self, nodes: Any, depth: int) -> list[Any]:
        if type(nodes) is not list:
            raise MalformedError("the result holds a container without a list of elements")
        if {*map(type, nodes)} <= _THEMSELVES:
            return nodes
        return [self.node(node, depth + 1) for node in nodes]

    def pairs(self, keys: Any, values: Any, depth: int) -> dict[Any, Any]:
        keys, values = self.nodes(keys, depth), self.nodes(values, depth)
        self._refuse_collisions(keys)
        pairs = dict(zip(keys, values, strict=True))
        if len(pairs) != len(keys):
            raise MalformedError("the result holds a mapping with the same key twice")
        return pairs

    def unique(self, nodes: Any, depth: int) -> list[Any]:
        items = self.nodes(nodes, depth)
        self._refuse_collisions(items)
        if len({*items}) != len(items):
            raise MalformedError("the result holds a set with the same element twice")
        return items

    def _refuse_collisions(self, items: list[Any]) -> None:
        """Refuse keys made to have equal hashes: a dict of n of them would take n squared steps."""
        if len(items) <= _FEW or {*map(type, items)} <= _HASHED_AT_RANDOM:
            return
        hashes = [*map(hash, items)]
        self.spare += 4 * len(items)  # some have equal ones for no bad reason: -1 and -2
        if len({*hashes}) < len(items) - _FEW:
            self.spare -= sum(n * n for n in Counter(hashes).values() if n > _FEW)
        if self.spare < 0:
            raise MalformedError("the result holds keys whose hashes were made to collide")

    def take(self, index: Any) -> Buffer:
        """Hand out a buffer; the second time it is gone, so that no copy can be had for nothing."""
        if type(index) is not int or not 0 <= index < len(self.buffers):
            raise MalformedError("the result refers to a buffer that it does not have")
        buffer = self.buffers[index]
        if buffer is None:
            raise MalformedError("the result refers to the same buffer twice")
        self.buffers[index] = None
        return buffer

    def of_class(self, index: Any, *kinds: int) -> Blueprint:
        if type(index) is not int or not 0 <= index < len(self.classes):
            raise MalformedError("the result refers to a class that it does not list")
        found = self.classes[index]
        if found.kind not in kinds:
            raise MalformedError(f"the result takes {found.name} for another kind of class")
        return found


def _check(condition: bool, what: str) -> None:
    if not condition:
        raise MalformedError(f"the result holds {what} that is none")


def _int(value: Any) -> int:
    _check(type(value) is int, "an integer")
    return int(value)


def _big_int(_: _Decoder, depth: int, data: Any) -> int:
    _check(type(data) is bytes and len(data) <= tags.MAX_INT_BYTES, "an integer")
    return int.from_bytes(data, "little", signed=True)


def _whole(decoder: _Decoder, node: Any) -> int:
    """Read an integer of any size."""
    if type(node) is list and node and node[0] == tags.INT:
        node = decoder.node(node, 0)
    return _int(node)


def _deque(decoder: _Decoder, depth: int, items: Any, maxlen: Any) -> deque[Any]:
    return deque(decoder.nodes(items, depth), None if maxlen is None else _int(maxlen))


def _default_dict(
    decoder: _Decoder, depth: int, keys: Any, values: Any, name: Any
) -> defaultdict[Any, Any]:
    factory = None if name is None else tags.FACTORIES[name]
    return defaultdict(factory, decoder.pairs(keys, values, depth))


def _bytes(decoder: _Decoder, depth: int, index: Any) -> bytes:
    return bytes(decoder.take(index))


def _bytearray(decoder: _Decoder, depth: int, data: Any) -> bytearray:
    memory = data if type(data) is bytes else decoder.take(data)
    return memory if isinstance(memory, bytearray) else bytearray(memory)


def _complex(_: _Decoder, depth: int, real: Any, imaginary: Any) -> complex:
    _check(type(real) is float and type(imaginary) is float, "a complex number")
    return complex(real, imaginary)


def _decimal(_: _Decoder, depth: int, text: Any) -> Decimal:
    _check(type(text) is str and len(text) <= tags.MAX_DECIMAL, "a decimal number")
    return Decimal(text)


def _fraction(decoder: _Decoder, depth: int, numerator: Any, denominator: Any) -> Fraction:
    parts = _whole(decoder, numerator), _whole(decoder, denominator)
    _check(all(part.bit_length() <= tags.MAX_RATIO_BYTES * 8 for part in parts), "a fraction")
    return Fraction(*parts)


def _range(decoder: _Decoder, depth: int, *parts: Any) -> range:
    start, stop, step = (_whole(decoder, part) for part in parts)
    return range(start, stop, step)


def _slice(decoder: _Decoder, depth: int, *parts: Any) -> slice:
    start, stop, step = decoder.nodes(list(parts), depth)
    return slice(start, stop, step)


def _uuid(_: _Decoder, depth: int, data: Any) -> UUID:
    _check(type(data) is bytes, "a UUID")
    return UUID(bytes=data)


def _path(_: _Decoder, depth: int, text: Any, pure: Any) -> pathlib.PurePath:
    _check(type(text) is str and type(pure) is bool, "a path")
    return pathlib.PurePosixPath(text) if pure else pathlib.Path(text)


def _timedelta(_: _Decoder, depth: int, days: Any, seconds: Any, micro: Any) -> dt.timedelta:
    return dt.timedelta(_int(days), _int(seconds), _int(micro))


def _fixed_zone(
    decoder: _Decoder, depth: int, days: Any, seconds: Any, micro: Any, name: Any
) -> dt.timezone:
    offset = _timedelta(decoder, depth, days, seconds, micro)
    return dt.timezone(offset) if name is None else dt.timezone(offset, name)


def _named_zone(_: _Decoder, depth: int, key: Any) -> ZoneInfo:
    _check(type(key) is str and _ZONE.fullmatch(key) is not None, "a time zone")
    return ZoneInfo(key)


_ZONE = re.compile(r"(?=.{1,64}\Z)[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
"""What can be the name of one, and of no other file or module."""


def _zone(decoder: _Decoder, node: Any) -> dt.tzinfo | None:
    if node is None:
        return None
    _check(type(node) is list and node[0] in (tags.FIXED_ZONE, tags.NAMED_ZONE), "a time zone")
    zone: dt.tzinfo = decoder.node(node, 0)
    return zone


def _datetime(decoder: _Decoder, depth: int, *parts: Any) -> dt.datetime:
    *numbers, fold, zone = parts
    year, month, day, hour, minute, second, micro = map(_int, numbers)
    return dt.datetime(
        year, month, day, hour, minute, second, micro, _zone(decoder, zone), fold=_int(fold)
    )


def _date(_: _Decoder, depth: int, year: Any, month: Any, day: Any) -> dt.date:
    return dt.date(_int(year), _int(month), _int(day))


def _time(decoder: _Decoder, depth: int, *parts: Any) -> dt.time:
    *numbers, fold, zone = parts
    hour, minute, second, micro = map(_int, numbers)
    return dt.time(hour, minute, second, micro, _zone(decoder, zone), fold=_int(fold))


def _object(decoder: _Decoder, depth: int, index: Any, held: Any) -> Any:
    plan = decoder.of_class(index, tags.DATACLASS, tags.NAMED_TUPLE)
    return plan.assemble(decoder.nodes(held, depth))


def _model(
    decoder: _Decoder, depth: int, index: Any, held: Any, given: Any, extra: Any, private: Any
) -> Any:
    plan = decoder.of_class(index, tags.PYDANTIC)
    fields, names = decoder.nodes(held, depth), decoder.nodes(given, depth)
    return plan.validate(
        fields, names, decoder.node(extra, depth + 1), decoder.node(private, depth + 1)
    )


def _member(decoder: _Decoder, depth: int, index: Any, name: Any) -> enum.Enum:
    return decoder.of_class(index, tags.ENUM).member(name)


def _flag(decoder: _Decoder, depth: int, index: Any, value: Any) -> enum.Flag:
    return decoder.of_class(index, tags.ENUM).flag(_whole(decoder, value))


def _array(decoder: _Decoder, depth: int, name: Any, shape: Any, order: Any, data: Any) -> Any:
    return arrays.decode_array(name, shape, order, data, decoder.take)


_BUILD: dict[int, Callable[..., Any]] = {
    tags.LIST: lambda decoder, depth, items: decoder.nodes(items, depth),
    tags.TUPLE: lambda decoder, depth, items: tuple(decoder.nodes(items, depth)),
    tags.SET: lambda decoder, depth, items: set(decoder.unique(items, depth)),
    tags.FROZENSET: lambda decoder, depth, items: frozenset(decoder.unique(items, depth)),
    tags.DEQUE: _deque,
    tags.DICT: lambda decoder, depth, keys, values: decoder.pairs(keys, values, depth),
    tags.ORDERED_DICT: lambda decoder, depth, keys, values: OrderedDict(
        decoder.pairs(keys, values, depth)
    ),
    tags.COUNTER: lambda decoder, depth, keys, values: Counter(decoder.pairs(keys, values, depth)),
    tags.DEFAULT_DICT: _default_dict,
    tags.INT: _big_int,
    tags.BYTES: _bytes,
    tags.BYTEARRAY: _bytearray,
    tags.COMPLEX: _complex,
    tags.DECIMAL: _decimal,
    tags.FRACTION: _fraction,
    tags.ELLIPSIS: lambda decoder, depth: ...,
    tags.RANGE: _range,
    tags.SLICE: _slice,
    tags.UUID: _uuid,
    tags.PATH: _path,
    tags.DATETIME: _datetime,
    tags.DATE: _date,
    tags.TIME: _time,
    tags.TIMEDELTA: _timedelta,
    tags.FIXED_ZONE: _fixed_zone,
    tags.NAMED_ZONE: _named_zone,
    tags.OBJECT: _object,
    tags.MODEL: _model,
    tags.MEMBER: _member,
    tags.FLAG: _flag,
    tags.REGISTERED: lambda decoder, depth, name, value: rebuild(
        name, lambda: decoder.node(value, depth + 1)
    ),
    tags.ARRAY: _array,
    tags.SCALAR: lambda decoder, depth, name, data: arrays.decode_scalar(name, data),
    tags.NUMPY_TEXT: lambda decoder, depth, value: arrays.decode_text(value),
}
