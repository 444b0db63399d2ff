"""The messages of a call, the same between client and server as between server and worker.

    client -> server -> worker      Call, Cancel
    worker -> server                Ready
    worker -> server -> client      Value, Failure

A message is a msgpack array: its tag, then its fields in the order they are declared. Its payload
(the arguments, the result) follows it and is described by ``segments``: the lengths of the main
stream and of each out-of-band buffer. Reading is strict: a known tag, every field of its exact type
and within its bound, nothing besides.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, get_args, overload

import msgpack

from agentix.wire.errors import MalformedError
from agentix.wire.protocol import (
    MAX_BUFFERS,
    MAX_DOCUMENT,
    MAX_HEAD,
    MAX_ID,
    MAX_PAYLOAD,
    MAX_TARGET,
    MAX_TEXT,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix.wire.frames import Buffer

Form: TypeAlias = Literal["values", "pickle"]
"""How a result is encoded: the closed data model or, only where the host asked for it, a pickle."""

FailureKind: TypeAlias = Literal["raised", "refused", "cancelled", "exited"]
"""The function raised; the runtime could not run it, or not send its result; it was cancelled; the
worker died."""

Segments: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Run ``target`` with the arguments in the payload (a pickle and its buffers)."""

    id: str
    target: str
    form: Form
    limit: int
    """The largest payload that the caller accepts as a result."""
    segments: Segments


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the call: nobody waits for it any more."""

    id: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has started."""


@dataclass(frozen=True, slots=True)
class Value:
    """The call returned; the payload holds what."""

    id: str
    form: Form
    kinds: str
    """One letter a buffer: ``b`` where the result holds it as bytes, ``a`` where as an array."""
    segments: Segments


@dataclass(frozen=True, slots=True)
class Failure:
    """The call ended in another way, told as text only."""

    id: str
    kind: FailureKind
    type: str
    message: str
    traceback: str = ""
    returncode: int | None = None


Message: TypeAlias = Call | Cancel | Ready | Value | Failure
A = TypeVar("A", bound=Message)
B = TypeVar("B", bound=Message)
C = TypeVar("C", bound=Message)


def _text(value: Any, most: int, least: int = 0) -> bool:
    return type(value) is str and least <= len(value) <= most


def _number(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _segments(value: Any) -> bool:
    if type(value) is not tuple or not 1 <= len(value) <= MAX_BUFFERS + 1:
        return False
    if len(value) == 1:
        return _number(value[0], 0, MAX_PAYLOAD)
    return all(_number(length, 0, MAX_PAYLOAD) for length in value) and sum(value) <= MAX_PAYLOAD


def _call(call_id: Any, target: Any, form: Any, limit: Any, segments: Any) -> bool:
    return (
        _text(call_id, MAX_ID, 1)
        and _text(target, MAX_TARGET, 1)
        and form in _FORMS
        and _number(limit, 0, MAX_PAYLOAD)
        and _segments(segments)
    )


def _cancel(call_id: Any) -> bool:
    return _text(call_id, MAX_ID, 1)


def _ready() -> bool:
    return True


def _value(call_id: Any, form: Any, kinds: Any, segments: Any) -> bool:
    return (
        _text(call_id, MAX_ID, 1)
        and form in _FORMS
        and _text(kinds, MAX_BUFFERS)
        and not kinds.strip("ab")
        and _segments(segments)
        and len(kinds) == len(segments) - 1
        and (form == "pickle" or segments[0] <= MAX_DOCUMENT)
    )


def _failure(
    call_id: Any, kind: Any, name: Any, message: Any, traceback: Any, returncode: Any
) -> bool:
    return (
        _text(call_id, MAX_ID, 1)
        and kind in _KINDS
        and _text(name, MAX_TARGET)
        and _text(message, MAX_TEXT)
        and _text(traceback, MAX_TEXT)
        and (returncode is None or _number(returncode, -(1 << 31), 1 << 31))
    )


_FORMS: Final = frozenset(get_args(Form))
_KINDS: Final = frozenset(get_args(FailureKind))
_CHECKS: Final[dict[str, tuple[type[Message], Callable[..., bool]]]] = {
    "call": (Call, _call),
    "cancel": (Cancel, _cancel),
    "ready": (Ready, _ready),
    "value": (Value, _value),
    "failure": (Failure, _failure),
}


def _getter(cls: type[Message]) -> Callable[[Any], tuple[Any, ...]]:
    names = [field.name for field in fields(cls)]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: tuple(getattr(message, name) for name in names)


_WRITERS: Final = {cls: (tag, _getter(cls)) for tag, (cls, _) in _CHECKS.items()}


def dump(message: Message) -> bytes:
    """Encode a message."""
    tag, get = _WRITERS[type(message)]
    head: bytes = msgpack.packb((tag, *get(message)), unicode_errors="surrogatepass")
    return head


@overload
def load(head: Buffer, first: type[A], /) -> A: ...
@overload
def load(head: Buffer, first: type[A], second: type[B], /) -> A | B: ...
@overload
def load(head: Buffer, first: type[A], second: type[B], third: type[C], /) -> A | B | C: ...
def load(head: Buffer, *expected: type[Any]) -> Any:
    """Decode a message of one of the expected classes, or raise :class:`MalformedError`."""
    if len(head) > MAX_HEAD:
        raise MalformedError(f"a message of {len(head):,} bytes is longer than {MAX_HEAD:,}")
    try:
        tag, *values = msgpack.unpackb(head, use_list=False, unicode_errors="surrogatepass")
        cls, valid = _CHECKS[tag]
        if cls not in expected or not valid(*values):
            raise MalformedError(f"a message {tag!r} is not valid here")
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as exc:
        if isinstance(exc, MalformedError):
            raise
        raise MalformedError("the bytes are not a message") from exc
    return cls(*values)


def shorten(text: str, limit: int = MAX_TEXT) -> str:
    """Cut a text that is too long in its middle: both ends of a traceback tell something."""
    if len(text) <= limit:
        return text
    mark = f"\n… {len(text) - limit:,} characters left out …\n"
    half = max(0, (limit - len(mark)) // 2)
    return text[:half] + mark + text[len(text) - half :]
