"""What a runtime answers, read off the wire: each segment into the memory that it stays in."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from agentix.client.memory import Bytes, writable
from agentix.wire import messages
from agentix.wire.errors import MalformedError
from agentix.wire.frames import MARK, PREFIX, padded, payload_size
from agentix.wire.messages import Failure, Item, Message, Noted, Pending, Records, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.client.http import Reader
    from agentix.wire.frames import Buffer

Answered: TypeAlias = Value | Failure | Pending | Item | Records | Noted

_START: Final = struct.Struct(MARK.format + PREFIX.format.lstrip("<"))
"""An answer's mark, and the length of its first message."""

_COPIES: Final[dict[str, type[bytes | bytearray]]] = {"a": bytearray, "b": bytes}
_MOST_WORDS: Final = 64 << 10
_HEADS: Final = 4 << 20
"""Bytes of an answer beside the largest payload."""


class Section(NamedTuple):
    """A message of an answer, and its payload taken apart."""

    message: Answered
    segments: list[Buffer]

    @property
    def size(self) -> int:
        """Bytes of its document."""
        return len(self.segments[0]) if self.segments else 0


class Answer(NamedTuple):
    """One answer: the number of the last record before it, and what it says."""

    mark: int
    sections: list[Section]


class Refusal(NamedTuple):
    """What was answered in words, with another status perhaps."""

    status: int
    text: bytes


class Words:
    """An answer in words, of which the beginning is read."""

    def whole(self, status: int, body: memoryview) -> Refusal:
        """Read a body that is there."""
        return Refusal(status, bytes(body[:_MOST_WORDS]))

    def parts(self, status: int, size: int) -> Reader[Refusal]:
        """Read a body of this size as it comes."""
        text = bytearray(min(size, _MOST_WORDS))
        yield text
        return Refusal(status, bytes(text))


class Expected:
    """What may be answered to a request, and how it is read."""

    __slots__ = ("_limit", "_messages", "_sections")

    def __init__(self, messages: tuple[type[Message], ...], limit: int, sections: int = 1) -> None:
        self._messages = messages
        self._limit = limit
        """Bytes of the largest payload."""
        self._sections = sections
        """How many messages at most."""

    def whole(self, status: int, body: memoryview) -> Answer | Refusal:
        """Read a body that is there."""
        return self.parse(body) if status == 200 else WORDS.whole(status, body)

    def parts(self, status: int, size: int) -> Reader[Answer | Refusal]:
        """Read a body of this size as it comes."""
        return self.read(size) if status == 200 else WORDS.parts(status, size)

    def parse(self, body: Buffer) -> Answer:
        """Read a whole answer, of which small segments stay where they are."""
        left = self._left(len(body))
        view = memoryview(body)
        mark, length = _START.unpack_from(view)
        sections: list[Section] = []
        at = _START.size
        while True:
            message, size = self._message(view[at : at + length], length, left)
            at += length
            left -= length + size
            sections.append(Section(message, _cut(message, view[at : at + size])))
            at += size
            if not left:
                return Answer(mark, sections)
            left = self._more(left, len(sections))
            length = PREFIX.unpack_from(view, at)[0]
            at += PREFIX.size

    def read(self, size: int) -> Reader[Answer]:
        """Read an answer of this size as it comes."""
        left = self._left(size)
        start = bytearray(_START.size)
        yield start
        mark, length = _START.unpack(start)
        sections: list[Section] = []
        while True:
            head = bytearray(min(length, left))
            yield head
            message, size = self._message(head, length, left)
            left -= length + size
            segments: list[Buffer] = []
            yield from _payload(message, segments)
            sections.append(Section(message, segments))
            if not left:
                return Answer(mark, sections)
            left = self._more(left, len(sections))
            prefix = bytearray(PREFIX.size)
            yield prefix
            length = PREFIX.unpack(prefix)[0]

    def _left(self, size: int) -> int:
        """Say how much follows the beginning of an answer of this size."""
        if size < _START.size:
            raise MalformedError("the answer is too short to be one")
        if size > self._limit + _HEADS:
            raise MalformedError(
                f"the answer takes {size:,} bytes, and {self._limit:,} are accepted"
            )
        return size - _START.size

    def _message(self, head: Buffer, length: int, left: int) -> tuple[Answered, int]:
        """Decode a message of this length, and say how long its payload is."""
        if length > left:
            raise MalformedError("the answer is shorter than its message says")
        message: Answered = messages.load(head, self._messages)  # type: ignore[assignment]
        if not isinstance(message, Value | Item | Records):
            return message, 0
        size = payload_size(message.segments)
        if size > self._limit:
            raise MalformedError(
                f"the result takes {size:,} bytes, and {self._limit:,} are accepted"
            )
        if size > left - length:
            raise MalformedError("the answer is shorter than its message says")
        return message, size

    def _more(self, left: int, count: int) -> int:
        """Say how much is left behind the beginning of a further message."""
        if left < PREFIX.size or count == self._sections:
            raise MalformedError("the answer is longer than its message says")
        return left - PREFIX.size


def _kinds(message: Answered) -> Iterator[tuple[str, int]]:
    """Give kind and size of each segment of a message's payload."""
    if isinstance(message, Value | Item):
        return zip(f"a{message.kinds}", message.segments, strict=True)
    if isinstance(message, Records):
        return zip("a", message.segments, strict=True)
    return iter(())


def _cut(message: Answered, payload: memoryview) -> list[Buffer]:
    """Take a payload apart that is there."""
    segments: list[Buffer] = []
    at = 0
    for kind, size in _kinds(message):
        segment = payload[at : at + size]
        # What the caller keeps is a copy of its own; of a document nothing is kept.
        segments.append(_COPIES[kind](segment) if segments else segment)
        at += padded(size)
    return segments


def _payload(message: Answered, segments: list[Buffer]) -> Reader[None]:
    """Read a payload as it comes."""
    gap = 0
    for kind, size in _kinds(message):
        if gap:
            yield bytearray(gap)
        gap = padded(size) - size
        if kind == "b":
            made = Bytes(size)
            with made.view() as view:
                yield view
            segments.append(made.value())
        else:
            memory = writable(size)
            yield memory
            segments.append(memory)


WORDS: Final = Words()
