"""What arrives at one end of the private socket: pieces of bytes, of which it makes frames.

It is untrusted until it is parsed: lengths are capped before anything is allocated for them.
"""

from __future__ import annotations

import array
import os
import socket
from collections import deque
from typing import Final

from agentix.wire.errors import MalformedError
from agentix.wire.frames import FRAME, frame_sizes
from agentix_runtime.parcel import Parcel, Payload, drop

_CHUNK: Final = 256 << 10
_TURN: Final = 64
"""Frames that are taken in one turn of the loop: a piece may hold tens of thousands."""

_DESCRIPTORS: Final = 8
_ANCILLARY: Final = socket.CMSG_SPACE(_DESCRIPTORS * 4)
_CLOEXEC: Final = int(socket.MSG_CMSG_CLOEXEC)  # as enums they would be slow to combine
_TRUNCATED: Final = int(socket.MSG_CTRUNC)


class Inbox:
    """Frames that have arrived, whole or in part, and the descriptors that came with them."""

    def __init__(self) -> None:
        self._bytes = bytearray(_CHUNK)
        self._filled = 0
        self._descriptors: deque[int | None] = deque()
        self.arrived: deque[tuple[bytes, Payload | None]] = deque()
        """Heads and payloads; ``None`` is a parcel that there was no descriptor left for."""
        self.rest = False
        """Whether whole frames are left, for the loop's next turn."""

    def read(self, sock: socket.socket) -> int:
        """Read once, and tell how many bytes."""
        space = memoryview(self._bytes)[self._filled :]
        try:
            count, ancillary, flags, _ = sock.recvmsg_into([space], _ANCILLARY, _CLOEXEC)
        finally:
            space.release()
        if ancillary or flags & _TRUNCATED:
            self._descriptors.extend(_descriptors(ancillary) or [None])
        self._filled += count
        return count

    def drop(self) -> None:
        """Let go of all."""
        while self.arrived:
            drop(self.arrived.popleft()[1])
        while self._descriptors:
            if (fd := self._descriptors.popleft()) is not None:
                os.close(fd)

    def take_apart(self) -> None:
        """Make frames of the bytes. Raises MalformedError for what is none."""
        at = 0
        need = FRAME.size
        while self._filled - at >= FRAME.size:
            head, inline, parcel = frame_sizes(self._bytes, at)
            need = FRAME.size + head + inline
            if self._filled - at < need:
                break
            if len(self.arrived) >= _TURN:
                self.rest = True
                break
            middle = at + FRAME.size + head
            message = bytes(self._bytes[at + FRAME.size : middle])
            at += need
            payload: Payload | None = self._bytes[middle:at]
            if parcel:
                payload = self._next_parcel()
            self.arrived.append((message, payload))
            need = FRAME.size
        rest = self._filled - at
        if at and rest:
            self._bytes[:rest] = self._bytes[at : self._filled]
        self._filled = rest
        if len(self._bytes) != (size := max(need, _CHUNK)):
            self._bytes = self._bytes[:rest].ljust(size, b"\0")

    def _next_parcel(self) -> Parcel | None:
        if not self._descriptors:
            raise MalformedError("a frame announces a parcel that did not come")
        fd = self._descriptors.popleft()
        return None if fd is None else Parcel.received(fd)


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()
