"""How a message and its payload lie in bytes.

A request, which is the body of an HTTP request or the data of a Socket.IO event:

    u32 length of the head | head (a message) | payload

Its answer, likewise, has one such section, or several where a stream's items are asked for, behind

    u64 number of the last record that was in the journal before this answer, but for those that
        other calls have logged which still run

A caller gives its user those records before the answer.

A frame on the socket between server and worker:

    u32 length of the head | u32 length of the inline payload | u8 parcel | head | inline payload

A payload longer than MAX_INLINE is a parcel: shared memory whose file descriptor travels with the
frame's first byte. A payload is its stream and its buffers, each starting at a multiple of ALIGN.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from agentix.wire.errors import MalformedError
from agentix.wire.protocol import MAX_HEAD, MAX_INLINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ALIGN: Final = 64
PREFIX: Final = struct.Struct("<I")
MARK: Final = struct.Struct("<Q")
FRAME: Final = struct.Struct("<IIB")
_PADDING: Final = bytes(ALIGN)

Buffer = bytes | bytearray | memoryview


class Deferred:
    """A buffer whose length is known, and which is made where that holds nobody up."""

    __slots__ = ("_size", "made")

    def __init__(self, size: int, made: Callable[[], Buffer]) -> None:
        self._size = size
        self.made = made

    def __len__(self) -> int:
        return self._size


def padded(length: int) -> int:
    """Round a length up to the next multiple of ALIGN."""
    return -(-length // ALIGN) * ALIGN


def payload_size(segments: Sequence[int]) -> int:
    """Count the bytes that a payload of these segments takes; the last one needs no padding."""
    if len(segments) == 1:
        return segments[0]
    return sum(padded(length) for length in segments[:-1]) + segments[-1]


def offsets(segments: Sequence[int]) -> list[int]:
    """Say where each segment begins in its payload."""
    starts, at = [], 0
    for length in segments:
        starts.append(at)
        at += padded(length)
    return starts


def pieces(stream: Sequence[Buffer], buffers: Sequence[Buffer | Deferred]) -> Iterator[Buffer]:
    """Lay out a payload: the stream's parts in one run, then each buffer at its own offset."""
    behind = sum(len(part) for part in stream)
    yield from stream
    for buffer in buffers:
        if gap := padded(behind) - behind:
            yield _PADDING[:gap]
        yield buffer.made() if isinstance(buffer, Deferred) else buffer
        behind = len(buffer)


def body_prefix(head: bytes) -> bytes:
    """Begin a request, or a section of an answer."""
    return PREFIX.pack(len(head)) + head


def body_head_size(prefix: Buffer) -> int:
    """Read how long the head of a section is."""
    size: int = PREFIX.unpack_from(prefix)[0]
    if size > MAX_HEAD:
        raise MalformedError(f"a message of {size:,} bytes is longer than {MAX_HEAD:,}")
    return size


def frame_prefix(head: bytes, inline: int, parcel: bool) -> bytes:
    """Begin a frame between server and worker."""
    return FRAME.pack(len(head), inline, parcel)


def frame_sizes(prefix: Buffer, at: int = 0) -> tuple[int, int, bool]:
    """Read a frame's head length, inline length and whether a parcel comes with it."""
    head, inline, parcel = FRAME.unpack_from(prefix, at)
    if head > MAX_HEAD or inline > MAX_INLINE or parcel > 1:
        raise MalformedError("a frame is longer than frames may be")
    return head, inline, bool(parcel)
