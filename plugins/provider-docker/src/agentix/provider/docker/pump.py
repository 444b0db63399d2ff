"""What one connection carries: from a local socket to a program in a container, and back.

The way back comes in frames, each with a head that says which output it is of. Whoever does not
take what comes stops the other side: no more than a piece in each direction is held here.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_PIECE: Final = 1 << 18
_HEAD: Final = struct.Struct(">BxxxL")
_ERRORS: Final = 2
_MOST_ERRORS: Final = 4096
_AGAIN: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_GONE: Final = select.POLLHUP | select.POLLERR


class Frames:
    """Takes the two outputs of a program apart."""

    def __init__(self) -> None:
        self.errors = b""
        """What it said on its standard error, to a bounded length."""
        self._head = b""
        self._kind = self._left = 0

    def take(self, data: bytes) -> bytes:
        """Return what of *data* the program wrote to its standard output."""
        if self._left >= len(data) and self._kind != _ERRORS:
            self._left -= len(data)
            return data
        parts, at, view = [], 0, memoryview(data)
        while at < len(data):
            if not self._left:
                head = self._head + data[at : at + _HEAD.size - len(self._head)]
                at += len(head) - len(self._head)
                self._head = head
                if len(head) < _HEAD.size:
                    break
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


def carry(
    here: socket.socket, there: socket.socket, early: bytes, stopped: Callable[[], bool]
) -> bytes:
    """Carry both ways until the program or the local side ends; return what it complained of.

    *early* is what has come from there already. To stop it, shut *here* down.
    """
    here.setblocking(False)
    there.setblocking(False)
    frames = Frames()
    down, up = memoryview(frames.take(early)), memoryview(b"")
    here_open = there_open = True
    with suppress(OSError):  # one of them broke: that ends it as well
        while not stopped() and (down or there_open):
            ready = _wait(
                (here, here_open and not up, down),
                (there, there_open and not down, up),
            )
            if ready.get(here.fileno(), 0) & _GONE:
                break
            down, up = _send(here, down), _send(there, up)
            if there_open and not down and (data := _receive(there)) is not None:
                down = _send(here, memoryview(frames.take(data)))
                there_open = data != b""
            if here_open and not up and (data := _receive(here)) is not None:
                up = _send(there, memoryview(data))
                here_open = data != b""
                if not here_open:
                    if isinstance(there, ssl.SSLSocket):
                        break  # that can only end as a whole
                    there.shutdown(socket.SHUT_WR)
    return frames.errors


def _wait(*ends: tuple[socket.socket, bool, memoryview]) -> dict[int, int]:
    """Wait until something can be received or sent that is to be, or the first end is gone."""
    poll = select.poll()
    for number, (end, reading, unsent) in enumerate(ends):
        events = (select.POLLIN if reading else 0) | (select.POLLOUT if unsent else 0)
        if events or number == 0:
            poll.register(end, events)
    return dict(poll.poll())


def _receive(end: socket.socket) -> bytes | None:
    """Return what has come, which is empty at the end of it; None when nothing has."""
    try:
        return end.recv(_PIECE)
    except _AGAIN:
        return None


def _send(end: socket.socket, data: memoryview) -> memoryview:
    """Send what fits; return the rest."""
    try:
        return data[end.send(data) :] if data else data
    except _AGAIN:
        return data
