"""What a runtime answers, read off the wire: each segment into the memory that it stays in.

Memory is reserved for what is announced, and taken by what arrives: a large piece of it consists of
pages that do not exist before something is written to them.
"""

from __future__ import annotations

import io
import mmap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from agentix.wire import messages
from agentix.wire.errors import MalformedError
from agentix.wire.frames import MARK, PREFIX, body_head_size, padded, payload_size
from agentix.wire.messages import Failure, Item, Message, Noted, Pending, Records, Value

if TYPE_CHECKING:
    from collections.abc import Generator

    from agentix.wire.frames import Buffer

Answered: TypeAlias = Value | Failure | Pending | Item | Records | Noted

_LAZY: Final = 1 << 20
"""Bytes from which writable memory comes in pages of its own."""

_HEADS: Final = 4 << 20
"""Bytes of an answer beside the largest payload."""


@dataclass(frozen=True, slots=True)
class Section:
    """A message of an answer, and its payload taken apart."""

    message: Answered
    segments: list[Buffer] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of its document."""
        return len(self.segments[0]) if self.segments else 0


@dataclass(frozen=True, slots=True)
class Expected:
    """What may be answered to a request."""

    messages: tuple[type[Message], ...]
    limit: int
    """Bytes of the largest payload."""
    sections: int = 1
    """How many messages at most."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: the number of the last record before it, and what it says."""

    mark: int
    sections: list[Section]


def read_answer(size: int, expected: Expected) -> Generator[bytearray | memoryview, None, Answer]:
    """Read an answer of this length."""
    if size < MARK.size + PREFIX.size:
        raise MalformedError("the answer is too short to be one")
    limit = expected.limit
    if size > limit + _HEADS:
        raise MalformedError(f"the answer takes {size:,} bytes, and {limit:,} are accepted")
    start = bytearray(MARK.size + PREFIX.size)
    yield start
    mark: int = MARK.unpack_from(start)[0]
    prefix = start[MARK.size :]
    sections: list[Section] = []
    left = size - len(start)
    while True:
        length = body_head_size(prefix)
        if length > left:
            raise MalformedError("the answer is shorter than its message says")
        head = bytearray(length)
        yield head
        left -= length
        message: Answered = messages.load(head, expected.messages)  # type: ignore[assignment]
        section = Section(message)
        if isinstance(message, Value | Item | Records):
            length = payload_size(message.segments)
            if length > limit:
                raise MalformedError(
                    f"the result takes {length:,} bytes, and {limit:,} are accepted"
                )
            if length > left:
                raise MalformedError("the answer is shorter than its message says")
            left -= length
            yield from _payload(message, section.segments)
        sections.append(section)
        if not left:
            return Answer(mark, sections)
        if left < PREFIX.size or len(sections) == expected.sections:
            raise MalformedError("the answer is longer than its message says")
        prefix = bytearray(PREFIX.size)
        yield prefix
        left -= PREFIX.size


def _payload(
    message: Value | Item | Records, segments: list[Buffer]
) -> Generator[bytearray | memoryview, None, None]:
    kinds = "" if isinstance(message, Records) else message.kinds
    gap = 0
    for kind, size in zip(f"a{kinds}", message.segments, strict=True):
        if gap:
            yield bytearray(gap)
        gap = padded(size) - size
        if kind == "b":
            # BytesIO takes over the bytes it is made of, and gives them away, without a copy.
            file = io.BytesIO(bytes(size))
            with file.getbuffer() as view:
                yield view
            segments.append(file.getvalue())
        elif size < _LAZY:
            memory = bytearray(size)
            yield memory
            segments.append(memory)
        else:
            pages = memoryview(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            yield pages
            segments.append(pages)


def parse_answer(data: bytes, expected: Expected) -> Answer:
    """Read an answer that has come as a whole."""
    reader = read_answer(len(data), expected)
    view = memoryview(data)
    while True:
        try:
            target = memoryview(next(reader))
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        target[:] = view[: len(target)]
        view = view[len(target) :]


def read_text(size: int, most: int) -> Generator[bytearray | memoryview, None, bytes]:
    """Read the beginning of an answer in words."""
    text = bytearray(min(size, most))
    if text:
        yield text
    return bytes(text)
