"""The messages of the wire, the same between client and server as between server and worker.

    client -> server            Await, Next, Follow, Leave
    client -> server -> worker  Call, Cancel
    worker -> server            Ready, Record
    worker -> server -> client  Value, Failure, Item
    server -> client            Pending, Records, Noted
    server -> worker            Taken
    server <-> worker           Signal, Reply: events of namespaces (Socket.IO's, to the host)

Every request of a client can be sent again and is then answered as if it had come once: calls are
known by their ids, items of a stream and records of the journal by their numbers. That is how a
connection may break at any moment and nothing is lost, wrong or done twice.

A message is a msgpack array: its tag, then its fields in the order they are declared. Its payload
(the arguments, the result) follows it and is described by ``segments``: the lengths of the main
stream and of each out-of-band buffer. Reading is strict: a known tag, every field of its exact type
and within its bound, nothing besides.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    overload,
)

import msgpack

from agentix.wire.errors import MalformedError
from agentix.wire.fields import VALID, FailureKind, Form, Segments
from agentix.wire.protocol import MAX_HEAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix.wire.frames import Buffer

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def _message(cls: type[T]) -> type[T]:
    """Make a frozen dataclass, frozen for type checkers: the real thing is six times as slow."""
    return dataclass(slots=True)(cls)


# Requests


@_message
class Call:
    """Run ``target`` with the arguments in the payload (a pickle and its buffers).

    The id begins with the client's name and a dash. Answered by a Value, a Failure, or after
    ``wait`` milliseconds by Pending; a ``stream`` is answered by Pending at once.
    """

    id: str
    target: str
    form: Form
    limit: int
    """The largest payload that the caller accepts as a result."""
    wait: int
    stream: bool
    """Whether the target is a generator function, whose items the caller asks for by Next."""
    minor: str
    """The Python version (``3.11``) that the arguments' code is for; empty if they hold no code."""
    segments: Segments


@_message
class Await:
    """Answer as to the Call of this id."""

    id: str
    wait: int


@_message
class Next:
    """Answer with the Items of a stream that follow item number ``after``, counted from 1.

    Those up to it have arrived and are not kept any longer. The last answer ends with a Value
    without a payload, or with a Failure.
    """

    id: str
    after: int
    wait: int


@_message
class Cancel:
    """End the call: nobody waits for it any more. Answered by Noted."""

    id: str


@_message
class Follow:
    """Answer with the records of the journal after number ``after``, once there are any.

    Those up to it have been taken, and need not be kept for this client. An open Follow also tells
    that the client is there.
    """

    client: str
    journal: str
    """The journal that the number is of; empty at first."""
    after: int
    wait: int


@_message
class Leave:
    """End the client's calls, and forget what is kept for it. Answered by Noted."""

    client: str


# Answers


@_message
class Value:
    """The call returned; the payload holds what. At the end of a stream it holds nothing."""

    id: str
    form: Form
    kinds: str
    """One letter a buffer: ``b`` where the result holds it as bytes, ``a`` where as an array."""
    segments: Segments


@_message
class Item:
    """A generator yielded; fields as in Value."""

    id: str
    number: int
    form: Form
    kinds: str
    segments: Segments


@_message
class Failure:
    """The call ended in another way, told as text only."""

    id: str
    kind: FailureKind
    type: str
    message: str
    traceback: str = ""
    returncode: int | None = None


@_message
class Pending:
    """The call goes on."""

    id: str


@_message
class Records:
    """Records of the journal, back to back in the payload (see ``agentix.wire.records``).

    If ``first`` is not the one that follows what was asked for, those in between had to be dropped.
    """

    journal: str
    first: int
    count: int
    segments: Segments


@_message
class Noted:
    """What was asked for is done."""


# Between server and worker


@_message
class Ready:
    """The worker has started."""


@_message
class Record:
    """A log record or a span event for the journal, in the payload."""

    call: str
    """The call that it comes from; empty if from none that is known."""
    segments: Segments


@_message
class Taken:
    """The caller of a stream has taken its items up to this number."""

    id: str
    number: int


@_message
class Signal:
    """An event of a namespace; its data is in the payload, as msgpack."""

    namespace: str
    event: str
    request: int
    """Above 0: a Reply with this number is waited for on the side that sent the signal."""
    segments: Segments


@_message
class Reply:
    """What a handler made of a signal: data in the payload or, if ``type`` is given, an error."""

    request: int
    type: str
    message: str
    status: int | None
    segments: Segments


Message: TypeAlias = (
    Call
    | Await
    | Next
    | Cancel
    | Follow
    | Leave
    | Value
    | Item
    | Failure
    | Pending
    | Records
    | Noted
    | Ready
    | Record
    | Taken
    | Signal
    | Reply
)
M = TypeVar("M", bound=Message)
A = TypeVar("A", bound=Message)
B = TypeVar("B", bound=Message)
C = TypeVar("C", bound=Message)

_CHECKS: Final[dict[str, tuple[type[Message], Callable[..., bool]]]] = {
    tag: (cls, VALID[tag])
    for tag, cls in (
        ("call", Call),
        ("await", Await),
        ("next", Next),
        ("cancel", Cancel),
        ("follow", Follow),
        ("leave", Leave),
        ("value", Value),
        ("item", Item),
        ("failure", Failure),
        ("pending", Pending),
        ("records", Records),
        ("noted", Noted),
        ("ready", Ready),
        ("record", Record),
        ("taken", Taken),
        ("signal", Signal),
        ("reply", Reply),
    )
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
def load(head: Buffer, expected: type[M], /) -> M: ...
@overload
def load(head: Buffer, expected: tuple[type[A], type[B]], /) -> A | B: ...
@overload
def load(head: Buffer, expected: tuple[type[A], type[B], type[C]], /) -> A | B | C: ...
@overload
def load(head: Buffer, expected: tuple[type[Message], ...], /) -> Message: ...
def load(head: Buffer, expected: Any, /) -> Any:
    """Decode a message of one of the expected classes, or raise :class:`MalformedError`."""
    if len(head) > MAX_HEAD:
        raise MalformedError(f"a message of {len(head):,} bytes is longer than {MAX_HEAD:,}")
    try:
        tag, *values = msgpack.unpackb(
            head, use_list=False, max_map_len=0, unicode_errors="surrogatepass"
        )
        cls, valid = _CHECKS[tag]
        known = cls in expected if type(expected) is tuple else cls is expected
        if not known or not valid(*values):
            raise MalformedError(f"a message {tag!r} is not valid here")
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as exc:
        if isinstance(exc, MalformedError):
            raise
        raise MalformedError("the bytes are not a message") from exc
    return cls(*values)
