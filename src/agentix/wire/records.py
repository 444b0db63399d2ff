"""The records of a sandbox's journal: what was logged, printed and traced in it, in order.

Each is a msgpack array: its tag, then its fields in the order they are declared. The worker and the
server write them, the host reads them: strictly, since whoever controls a sandbox controls them.
On their way to the host they lie back to back, each behind its length as a u32.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgpack

from agentix.wire.errors import MalformedError
from agentix.wire.frames import PREFIX
from agentix.wire.protocol import MAX_RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentix.wire.frames import Buffer

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
"""What extra fields and attributes are made of; anything else is sent as its repr."""

MAX_NESTING: Final = 32
MAX_ELEMENTS: Final = 1 << 20
"""Elements of all containers in one record."""


@dataclass(frozen=True, slots=True)
class Log:
    """A record of the logging module."""

    time: int
    """Nanoseconds since 1970, as all times here."""
    level: int
    logger: str
    message: str
    template: str = ""
    """What was logged before its arguments were put into it; empty if that is the message."""
    arguments: list[str] = field(default_factory=list)
    exception: str = ""
    stack: str = ""
    path: str = ""
    line: int = 0
    function: str = ""
    process: int = 0
    process_name: str = ""
    thread: int = 0
    thread_name: str = ""
    task: str = ""
    extra: dict[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Output:
    """A line that the worker or one of its children wrote to standard output or error."""

    time: int
    stream: Literal["stdout", "stderr"]
    line: str


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """A trace began or ended."""

    phase: Literal["start", "end"]
    trace_id: str
    name: str
    start: int
    end: int
    """0 while it goes on."""
    metadata: dict[str, Plain]


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """A span began or ended, with all that is known of it by then."""

    phase: Literal["start", "end"]
    trace_id: str
    span_id: str
    parent_id: str
    """Empty for a trace's first span."""
    name: str
    start: int
    end: int
    """0 while it goes on."""
    status: Literal["unset", "ok", "error"]
    status_message: str
    attributes: dict[str, Plain]
    events: list[list[Plain]]
    """Each a name, a time and a mapping of attributes."""


Entry: TypeAlias = Log | Output | TraceEvent | SpanEvent

_LONG: Final = MAX_RECORD
_TIME: Final = (0, 1 << 63)


def _of(kind: type, least: int, most: int) -> Callable[[Any], bool]:
    if kind is str:
        return lambda value: type(value) is str and least <= len(value) <= most
    return lambda value: type(value) is int and least <= value <= most


def _one_of(*texts: str) -> Callable[[Any], bool]:
    return lambda value: value in texts and type(value) is str


def as_plain(value: Any, depth: int = 0) -> Plain:
    """Make plain data of anything: what is not is told by its repr, whatever that does."""
    if value is None or type(value) in (bool, float, str):
        return cast("Plain", value)
    if type(value) is int and -(1 << 63) <= value < 1 << 64:
        return value
    if depth < MAX_NESTING:
        if isinstance(value, list | tuple):
            return [as_plain(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {
                key if type(key) is str else _told(key): as_plain(item, depth + 1)
                for key, item in value.items()
            }
    return _told(value)


def _told(value: Any) -> str:
    try:
        return "".join(value if isinstance(value, str) else repr(value))
    except Exception as exc:
        return f"<a {type(value).__name__} whose repr raises {type(exc).__name__}>"


def is_plain(value: Any, depth: int = 0) -> bool:
    """Tell whether a value is made of nothing but plain data."""
    if value is None or type(value) in (bool, int, float, str):
        return True
    if depth >= MAX_NESTING:
        return False
    if type(value) is list:
        return all(is_plain(item, depth + 1) for item in value)
    return type(value) is dict and all(
        type(key) is str and is_plain(item, depth + 1) for key, item in value.items()
    )


def _mapping(value: Any) -> bool:
    return type(value) is dict and is_plain(value)


def _texts(value: Any) -> bool:
    return type(value) is list and all(type(text) is str for text in value)


def _events(value: Any) -> bool:
    return type(value) is list and all(
        type(event) is list
        and len(event) == 3
        and type(event[0]) is str
        and _time(event[1])
        and _mapping(event[2])
        for event in value
    )


_name = _of(str, 0, 1024)
_text = _of(str, 0, _LONG)
_time = _of(int, *_TIME)
_number = _of(int, 0, (1 << 64) - 1)
_hex = _of(str, 0, 32)
_phase = _one_of("start", "end")

_CHECKS: Final[dict[str, tuple[type[Entry], tuple[Callable[[Any], bool], ...]]]] = {
    "log": (
        Log,
        (
            _time,
            _of(int, 0, 1 << 31),
            *(_name, _text, _text, _texts, _text, _text, _name, _number, _name),
            *(_number, _name, _number, _name, _name, _mapping),
        ),
    ),
    "out": (Output, (_time, _one_of("stdout", "stderr"), _text)),
    "trace": (TraceEvent, (_phase, _hex, _text, _time, _time, _mapping)),
    "span": (
        SpanEvent,
        (
            *(_phase, _hex, _hex, _hex, _text, _time, _time),
            *(_one_of("unset", "ok", "error"), _text, _mapping, _events),
        ),
    ),
}
_WRITERS: Final = {
    cls: (tag, attrgetter(*(field.name for field in fields(cls))))
    for tag, (cls, _) in _CHECKS.items()
}


def dump(entry: Entry) -> bytes:
    """Encode a record."""
    tag, get = _WRITERS[type(entry)]
    return cast("bytes", msgpack.packb((tag, *get(entry)), unicode_errors="surrogatepass"))


sink: Callable[[bytes], None] | None = None
"""Where this process's records go; None where there is no journal: on the host."""


def prefixed(record: bytes) -> bytes:
    """Lay out an encoded record as it travels to the host."""
    return PREFIX.pack(len(record)) + record


def load_all(data: Buffer, count: int) -> Iterator[Entry | MalformedError]:
    """Decode this many records, one as good as its bytes are: a bad one harms no other."""
    view = memoryview(data)
    for _ in range(count):
        size = PREFIX.unpack_from(view)[0] if len(view) >= PREFIX.size else MAX_RECORD + 1
        record, view = view[PREFIX.size : PREFIX.size + size], view[PREFIX.size + size :]
        if size > MAX_RECORD or len(record) < size:
            yield MalformedError("the records end before the last one")
            return
        yield _load(record)


def _load(record: memoryview) -> Entry | MalformedError:
    elements = 0

    def bounded(container: Any) -> Any:
        # A byte can stand for a container of a hundred bytes here.
        nonlocal elements
        elements += len(container) + 1
        if elements > MAX_ELEMENTS:
            raise MalformedError(f"a record has more than {MAX_ELEMENTS:,} elements")
        return container

    try:
        values = msgpack.unpackb(
            record,
            unicode_errors="surrogatepass",
            list_hook=bounded,
            object_hook=bounded,
            max_array_len=MAX_ELEMENTS,
            max_map_len=MAX_ELEMENTS,
        )
    except MalformedError as exc:
        return exc
    except Exception as exc:  # what msgpack raises for bytes of all kinds
        return MalformedError(f"a record cannot be read: {type(exc).__name__}")
    return _entry(values)


def _entry(values: Any) -> Entry | MalformedError:
    if type(values) is not list or not values or type(values[0]) is not str:
        return MalformedError("a record is not one")
    cls, checks = _CHECKS.get(values[0], (None, ()))
    if cls is None or len(values) - 1 != len(checks):
        return MalformedError("a record is of an unknown kind")
    if not all(check(value) for check, value in zip(checks, values[1:], strict=True)):
        return MalformedError(f"a record {values[0]!r} is not valid")
    return cls(*values[1:])
