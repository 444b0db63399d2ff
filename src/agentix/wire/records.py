"""The records of a sandbox's journal: what was logged, printed and traced in it, in order.

Each is a msgpack array: its tag, then its fields in the order they are declared, mappings being
columns (see ``agentix.wire.columns``). The worker and the server write them, the host reads them:
strictly, since whoever controls a sandbox controls them.
On their way to the host they lie back to back, each behind its length as a u32.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgpack

from agentix.wire.columns import fold, unfold
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


@dataclass(slots=True)  # frozen ones take several times as long to make, and there may be many
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


@dataclass(slots=True)
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


def _number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _log(
    time: Any,
    level: Any,
    logger: Any,
    message: Any,
    template: Any,
    arguments: Any,
    exception: Any,
    stack: Any,
    path: Any,
    line: Any,
    function: Any,
    process: Any,
    process_name: Any,
    thread: Any,
    thread_name: Any,
    task: Any,
    extra: Any,
) -> bool:
    # One expression instead of a function for each field: there may be many records.
    return (
        type(time) is type(level) is type(line) is type(process) is type(thread) is int
        and 0 <= time <= _MOST
        and 0 <= level <= 1 << 31
        and 0 <= line <= _MOST
        and 0 <= process <= _MOST
        and 0 <= thread <= _MOST
        and type(message) is type(template) is type(exception) is type(stack) is str
        and type(logger) is type(path) is type(function) is str
        and type(process_name) is type(thread_name) is type(task) is str
        and len(logger) <= MAX_NAME
        and len(path) <= MAX_NAME
        and len(function) <= MAX_NAME
        and len(process_name) <= MAX_NAME
        and len(thread_name) <= MAX_NAME
        and len(task) <= MAX_NAME
        and type(arguments) is list
        and (not arguments or all(type(text) is str for text in arguments))
        and type(extra) is list
    )


def _output(time: Any, stream: Any, line: Any) -> bool:
    return _number(time) and type(stream) is type(line) is str and stream in _STREAMS


def _trace(phase: Any, trace_id: Any, name: Any, start: Any, end: Any, metadata: Any) -> bool:
    return (
        type(phase) is type(trace_id) is type(name) is str
        and phase in _PHASES
        and len(trace_id) <= MAX_HEX
        and _number(start)
        and _number(end)
        and type(metadata) is list
    )


def _span(
    phase: Any,
    trace_id: Any,
    span_id: Any,
    parent_id: Any,
    name: Any,
    start: Any,
    end: Any,
    status: Any,
    status_message: Any,
    attributes: Any,
    events: Any,
) -> bool:
    return (
        _trace(phase, trace_id, name, start, end, attributes)
        and type(span_id) is type(parent_id) is type(status) is type(status_message) is str
        and len(span_id) <= MAX_HEX
        and len(parent_id) <= MAX_HEX
        and status in _STATUSES
        and type(events) is list
        and all(
            type(event) is list
            and len(event) == 3
            and type(event[0]) is str
            and _number(event[1])
            and type(event[2]) is list
            for event in events
        )
    )


MAX_NAME: Final = 1024
_MOST: Final = (1 << 64) - 1
MAX_HEX: Final = 32
_LEAVES: Final = frozenset({type(None), bool, int, float, str})
_STREAMS: Final = frozenset({"stdout", "stderr"})
_PHASES: Final = frozenset({"start", "end"})
_STATUSES: Final = frozenset({"unset", "ok", "error"})

_CHECKS: Final[dict[str, tuple[type[Entry], Callable[..., bool]]]] = {
    "log": (Log, _log),
    "out": (Output, _output),
    "trace": (TraceEvent, _trace),
    "span": (SpanEvent, _span),
}
_WRITERS: Final = {
    cls: (tag, attrgetter(*(field.name for field in fields(cls))))
    for tag, (cls, _) in _CHECKS.items()
}


def dump(entry: Entry) -> bytes:
    """Encode a record."""
    tag, get = _WRITERS[type(entry)]
    if type(entry) is Log:
        return dump_log(get(entry))
    values = [tag, *get(entry)]
    if isinstance(entry, SpanEvent):
        values[-1] = [[name, time, _fold(attributes)] for name, time, attributes in entry.events]
        values[-2] = _fold(entry.attributes)
    elif isinstance(entry, TraceEvent):
        values[-1] = _fold(entry.metadata)
    return cast("bytes", msgpack.packb(values, unicode_errors="surrogatepass"))


def dump_log(values: tuple[Any, ...]) -> bytes:
    """Encode a Log of these fields, without making one first."""
    extra = values[-1]
    folded = ("log", *values[:-1], _fold(extra) if extra else [])
    return cast("bytes", msgpack.packb(folded, unicode_errors="surrogatepass"))


def _fold(mapping: Any) -> Any:
    return fold(mapping, "a record", MAX_NESTING + 1)


def _unfold(folded: Any) -> dict[str, Plain]:
    mapping = unfold(folded, _LEAVES, MAX_NESTING + 1)
    if type(mapping) is not dict:
        raise MalformedError("a record has something else in a mapping's place")
    return mapping


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
    try:
        if len(record) <= _SHORT:
            values = msgpack.unpackb(record, max_map_len=0, unicode_errors="surrogatepass")
        else:
            values = _unpack_bounded(record)
        cls, valid = _CHECKS[values[0]]
        if type(values) is not list or not valid(*values[1:]):
            return MalformedError(f"a record {values[0]!r} is not valid")
        if cls is SpanEvent:
            values[-1] = [[name, time, _unfold(folded)] for name, time, folded in values[-1]]
            values[-2] = _unfold(values[-2])
        elif cls is not Output:
            values[-1] = _unfold(values[-1]) if values[-1] else {}
    except MalformedError as exc:
        return exc
    except Exception as exc:  # what msgpack raises for bytes of all kinds
        return MalformedError(f"a record cannot be read: {type(exc).__name__}")
    return cls(*values[1:])


_SHORT: Final = 64 << 10


def _unpack_bounded(record: memoryview) -> Any:
    """Unpack a long record; a byte can stand for a container of a hundred bytes here."""
    elements = 0

    def bounded(container: Any) -> Any:
        nonlocal elements
        elements += len(container) + 1
        if elements > MAX_ELEMENTS:
            raise MalformedError(f"a record has more than {MAX_ELEMENTS:,} elements")
        return container

    return msgpack.unpackb(
        record,
        unicode_errors="surrogatepass",
        list_hook=bounded,
        max_array_len=MAX_ELEMENTS,
        max_map_len=0,
    )
