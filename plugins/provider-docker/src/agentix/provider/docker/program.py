"""A program in a container, as a stream: it hears what is sent, and what it writes comes back.

The way back comes in frames, each with a head that says which output it is of.
"""

from __future__ import annotations

import ssl
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket

_PIECE: Final = 1 << 18
_HEAD: Final = struct.Struct(">BxxxL")
_ERRORS: Final = 2
_MOST_ERRORS: Final = 4096
_AGAIN: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Program:
    """The two outputs of a program, and its input, over the connection *there*.

    *early* is what has come of it already.
    """

    def __init__(self, there: socket.socket, early: bytes) -> None:
        there.setblocking(False)
        self.there = there
        self.errors = b""
        """What it said on its standard error, to a bounded length."""
        self._early = early
        self._head = b""
        self._kind = self._left = 0

    def receive(self) -> bytes | None:
        """Return what it wrote, which is empty at the end; None when that is nothing."""
        while True:
            data, self._early = self._early, b""
            try:
                data = data or self.there.recv(_PIECE)
            except _AGAIN:
                return None
            if not data or (written := self._take(data)):
                return data and written

    def send(self, data: memoryview) -> int:
        """Have it hear something; return how much of it was taken."""
        try:
            return self.there.send(data)
        except _AGAIN:
            return 0

    def _take(self, data: bytes) -> bytes:
        """Return what of *data* the program wrote to its standard output."""
        parts, at, view = [], 0, memoryview(data)
        while at < len(data):
            if not self._left:
                head = self._head + data[at : at + _HEAD.size - len(self._head)]
                at += len(head) - len(self._head)
                self._head = head
                if len(head) == _HEAD.size:
                    (self._kind, self._left), self._head = _HEAD.unpack(head), b""
                continue
            part = view[at : at + self._left]
            at += len(part)
            self._left -= len(part)
            if self._kind != _ERRORS:
                parts.append(part)
            elif len(self.errors) < _MOST_ERRORS:
                self.errors += part[:_MOST_ERRORS]
        return b"".join(parts)
