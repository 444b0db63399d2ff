"""Many connections over one stream of bytes: its end on this machine, and its end in a sandbox.

There it is a program that travels as text, so that any bundle's Python runs it; it loads next to
nothing, to be quick. Its standard input and output are the stream.

Either end says, of a connection by its number: that there is one, what came on it, that nothing
more will come, how many bytes of the other end's it has passed on, or that it broke. Nobody sends
more than a window's bytes that were not passed on, so what one connection's reader does not take
holds up no other, and nowhere is more than that in memory.
"""

from __future__ import annotations

import posix
import select
import sys
import time
from _socket import AF_UNIX, SHUT_WR, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW = 1 << 20
PIECE = 1 << 15
FULL = 1 << 18  # bytes that wait for the stream, at which no more are read
PART = WINDOW // 4  # bytes passed on that are worth telling
HEAD = 9
OPEN, DATA, END, TAKEN, BROKEN = range(5)


class NonsenseError(Exception):
    """The other end does not keep to the rules."""


class Channel:
    """One connection."""

    def __init__(self, sock: socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.reading = True  # until it has no more to say
        self.writing = True  # until the other end has not
        self.credit = WINDOW
        self.room = WINDOW
        self.taken = 0
        self.waiting: list[memoryview] = []
        self.ended = False  # and has been told so


class Joint:
    """One end of the stream, and the connections that it carries.

    *receive* returns bytes, none at the end, or None when there are none yet; *send* returns how
    many of what it is given it took; *connect* makes what the other end opens.
    """

    def __init__(
        self,
        ends: tuple[int, int],
        receive: Callable[[], bytes | None],
        send: Callable[[memoryview], int],
        connect: Callable[[], socket | None] | None = None,
    ) -> None:
        self.channels: dict[int, Channel] = {}
        self._incoming, self._outgoing = ends
        self._receive, self._send, self._connect = receive, send, connect
        self._last = 0
        self._in, self._out = bytearray(), bytearray()

    def open(self, sock: socket) -> None:
        """Carry this connection, too."""
        self._last += 1
        self.channels[self._last] = Channel(sock)
        self._say(self._last, OPEN)

    def turn(self, listener: int = -1) -> bool | None:
        """Do what can be done, once something can; None at the end of the stream.

        Tell whether there is somebody at the *listener*.
        """
        poll = select.poll()
        events = {self._incoming: select.POLLIN}
        if self._out:
            events[self._outgoing] = events.get(self._outgoing, 0) | select.POLLOUT
        if listener >= 0:
            events[listener] = select.POLLIN
        for each in self.channels.values():
            reading = each.reading and each.credit and len(self._out) < FULL
            wanted = (select.POLLIN if reading else 0) | (select.POLLOUT if each.waiting else 0)
            if wanted:
                events[each.sock.fileno()] = wanted
        for descriptor, wanted in events.items():
            poll.register(descriptor, wanted)
        ready = dict(poll.poll())
        for number, each in list(self.channels.items()):
            if each.sock.fileno() in ready:
                self._move(number, each)
        if self._incoming in ready:
            data = self._receive()
            if data == b"":
                return None
            self._in += data or b""
            self._take()
        if self._out:
            with memoryview(self._out) as view:
                sent = self._send(view)
            del self._out[:sent]
        return listener in ready

    def close(self) -> None:
        """End all connections."""
        for each in self.channels.values():
            each.sock.close()
        self.channels = {}

    def _say(self, number: int, kind: int, count: int = 0, data: bytes = b"") -> None:
        self._out += number.to_bytes(4, "big") + bytes((kind,)) + count.to_bytes(4, "big") + data

    def _move(self, number: int, each: Channel) -> None:
        """Write and read what a connection is ready for."""
        self._pass_on(number, each)
        if not (each.reading and each.credit and len(self._out) < FULL):
            return
        try:
            data = each.sock.recv(min(PIECE, each.credit))
        except BlockingIOError:
            return
        except OSError:  # also when writing has just failed
            self._break(number, each)
            return
        if data:
            each.credit -= len(data)
            self._say(number, DATA, len(data), data)
        else:
            each.reading = False
            self._say(number, END)
            self._forget_if_over(number, each)

    def _take(self) -> None:
        """Do what the other end has said."""
        at, data = 0, self._in
        while len(data) - at >= HEAD:
            number = int.from_bytes(data[at : at + 4], "big")
            kind = data[at + 4]
            count = int.from_bytes(data[at + 5 : at + HEAD], "big")
            size = count if kind == DATA else 0
            if size > PIECE:
                raise NonsenseError
            if len(data) - at < HEAD + size:
                break
            self._do(number, kind, count, bytes(data[at + HEAD : at + HEAD + size]))
            at += HEAD + size
        del data[:at]

    def _do(self, number: int, kind: int, count: int, data: bytes) -> None:
        if kind == OPEN:
            if self._connect is None or number <= self._last:
                raise NonsenseError
            self._last = number
            sock = self._connect()
            if sock is None:
                self._say(number, BROKEN)
            else:
                self.channels[number] = Channel(sock)
            return
        each = self.channels.get(number)
        if each is None:  # it has just broken here
            return
        if kind == DATA and each.writing and each.room >= count:
            each.room -= count
            each.waiting.append(memoryview(data))
        elif kind == END and each.writing:
            each.writing = False
        elif kind == TAKEN and each.credit + count <= WINDOW:
            each.credit += count
            return
        elif kind == BROKEN:
            del self.channels[number]
            each.sock.close()
            return
        else:
            raise NonsenseError
        self._pass_on(number, each)

    def _pass_on(self, number: int, each: Channel) -> None:
        """Write what has come for a connection, and then, if that was all, the end of it."""
        try:
            while each.waiting:
                data = each.waiting[0]
                sent = each.sock.send(data)
                each.taken += sent
                each.waiting[:1] = [data[sent:]] if sent < len(data) else []
            if not (each.writing or each.ended):
                each.ended = True
                each.sock.shutdown(SHUT_WR)
                self._forget_if_over(number, each)
        except BlockingIOError:
            pass
        except OSError:
            self._break(number, each)
            return
        if each.taken >= PART:
            self._say(number, TAKEN, each.taken)
            each.room += each.taken
            each.taken = 0

    def _forget_if_over(self, number: int, each: Channel) -> None:
        if each.ended and not each.reading:
            self.channels.pop(number, None)
            each.sock.close()

    def _break(self, number: int, each: Channel) -> None:
        if self.channels.pop(number, None) is not None:
            self._say(number, BROKEN)
            each.sock.close()


def connect(path: str, until: float) -> socket | None:
    """Return a connection to the runtime, which may be about to listen; None when it is not."""
    while True:
        runtime = socket(AF_UNIX)
        try:
            runtime.connect(path)
        except OSError:
            runtime.close()
            if time.monotonic() > until:
                return None
            time.sleep(0.002)
        else:
            return runtime


def receive() -> bytes | None:
    """Read standard input."""
    try:
        return posix.read(0, FULL)
    except BlockingIOError:
        return None


def send(data: memoryview) -> int:
    """Write standard output."""
    try:
        return posix.write(1, data)
    except BlockingIOError:
        return 0


def main() -> None:
    """Carry what comes until nobody is there any more."""
    path, until = sys.argv[1], time.monotonic() + float(sys.argv[2])
    posix.set_blocking(0, False)
    posix.set_blocking(1, False)
    joint = Joint((0, 1), receive, send, lambda: connect(path, until))
    try:
        while joint.turn() is not None:
            pass
    finally:
        posix._exit(0)


if __name__ == "__main__":
    main()
