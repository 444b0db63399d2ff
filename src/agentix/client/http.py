"""HTTP/1.1 to one runtime, no more of it than that takes: bodies of known length, kept connections.

An answer that has not come as a whole is read by a generator: it yields the memory that the next
bytes belong in, and returns what it made of them. Long pieces are received right there. Whoever
controls a sandbox controls what is answered, so reading is strict, bounded, and ends in one
MalformedError.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from agentix.client.held_socket import HeldSocket
from agentix.wire.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from agentix.client.url import RuntimeURL
    from agentix.wire.frames import Buffer

T = TypeVar("T")
S_co = TypeVar("S_co", covariant=True)
Reader: TypeAlias = "Generator[Buffer, None, T]"
"""Reads a body that is yet to come: it yields the memory that the next bytes belong in."""


class Form(Protocol[S_co]):
    """How a body is read, be it there already or not."""

    def whole(self, status: int, body: memoryview) -> S_co:
        """Read a body that is there; it stays as it is."""

    def parts(self, status: int, size: int) -> Reader[S_co]:
        """Make the reader of a body of this size."""


_SCRATCH: Final = 256 << 10
_DIRECT: Final = 64 << 10
"""A piece of which so much is missing is received in its place, others by way of the scratch."""

_CHUNK: Final = 64 << 10
"""Bytes of a long request that are sent at once. Of those, asyncio copies what the kernel has no
room for."""

_LONGEST_HEAD: Final = 16 << 10
_CONNECT: Final = 30.0
_STILL: Final = 30.0
"""Seconds after which an answer is given up that has begun and does not go on."""

_IDLE: Final = 60.0
_LOOK: Final = 5.0

_TEXT: Final = rb"[\t\x20-\x7e\x80-\xff]*+"
_HEAD: Final = re.compile(
    rb"HTTP/1\.1 ([1-5][0-9]{2})(?: %b)?\r\n(?:[!#$%%&'*+\-.^_`|~0-9A-Za-z]++:%b\r\n)*+\r\n"
    % (_TEXT, _TEXT)
)
_FIELD: Final = re.compile(
    rb"^(content-length|transfer-encoding|connection):[ \t]*+([^\r]*+)\r$", re.I | re.M
)
_ORDINARY: Final = re.compile(
    rb"HTTP/1\.1 200 OK\r\n(?:Content-Type: [a-z/-]+\r\n)?Content-Length: ([0-9]{1,15})\r\n\r\n"
)
"""What nearly all heads are."""

_LENGTH: Final = re.compile(rb"[0-9]{1,15}[ \t]*")


class ConnectionLost(Exception):  # noqa: N818 - what happened; whether it is an error is open
    """The connection ended before the answer had come; the request may have arrived."""


class NotConnected(ConnectionLost):
    """There was no connection: the request has not been sent."""


class Unsettled(NotConnected):
    """A connection was accepted, but broke before anything could be sent on it."""


class Pool:
    """The connections to one runtime. Opens them when they are needed, in the loop that does."""

    def __init__(self, url: RuntimeURL) -> None:
        self._url = url
        self._socket: HeldSocket | None = None
        self._links: set[_Link] = set()
        self._idle: dict[_Link, None] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._scratch = memoryview(bytearray(_SCRATCH))
        self.closed = False

    async def request(
        self, start: bytes, rest: Iterable[Buffer], form: Form[T], patience: float
    ) -> T:
        """Send a request, its first bytes and the rest, and return what the reader returned.

        Raises ConnectionLost, also when nothing moves for *patience* seconds, and what the reader
        raised. A connection whose request was cancelled is closed: its answer may still come.
        """
        link = self._idle.popitem()[0] if self._idle else await self._connect()
        try:
            return await link.request(start, rest, form, patience)
        finally:
            if link.reusable:
                self._idle[link] = None
            else:
                link.close()

    def cut(self) -> None:
        """Close the connections that there are; requests that are under way lose them."""
        for link in list(self._links):
            link.close()

    async def close(self) -> None:
        """Close all connections for good."""
        self.closed = True
        self.cut()
        if self._watch is not None:
            self._watch.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._links:  # last, since this may be cancelled
            await asyncio.sleep(0)  # transports close in the loop's next turn

    async def _connect(self) -> _Link:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT):
                if self._url.socket is not None:
                    sock = await self._connect_unix(self._url.socket)
                    _, link = await loop.create_unix_connection(self._link, sock=sock)
                else:
                    _, link = await loop.create_connection(
                        self._link, self._url.host, self._url.port
                    )
        except TimeoutError as exc:
            raise NotConnected("it does not accept connections") from exc
        except OSError as exc:
            raise NotConnected(_reason(exc)) from exc
        if self.closed:  # while this was connecting
            link.close()
            raise NotConnected("the client was closed")
        return link

    async def _connect_unix(self, path: str) -> socket.socket:
        if self._socket is None:
            self._socket = HeldSocket(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            while not self.closed:
                try:
                    sock.connect(self._socket.path)
                    return sock
                except BlockingIOError:  # its queue is full
                    await asyncio.sleep(0.01)
            raise OSError("the client was closed")
        except BaseException:
            sock.close()
            raise

    def _link(self) -> _Link:
        link = _Link(self._scratch, self._ended)
        self._links.add(link)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(_LOOK, self._look)
        return link

    def _ended(self, link: _Link) -> None:
        self._links.discard(link)
        self._idle.pop(link, None)

    def _look(self) -> None:
        """End the connections that nothing has moved on for too long, or that nobody needs."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for link in list(self._links):
            if link in self._idle:
                if link.used + _IDLE < now:
                    link.close()
            elif link.deadline < now:
                link.close("it does not answer")
        self._watch = loop.call_later(_LOOK, self._look) if self._links else None


class _Link(asyncio.BufferedProtocol):
    """One connection, with at most one request on it."""

    _transport: asyncio.Transport

    def __init__(self, scratch: memoryview, ended: Callable[[_Link], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._scratch = scratch
        self._ended = ended
        self._open = False
        self._lost = ""
        self._waiter: asyncio.Future[Any] | None = None
        self._room: asyncio.Future[None] | None = None
        self._paused = False
        self._clear()
        self.reusable = False
        self.used = 0.0
        self.deadline = 0.0

    def _clear(self) -> None:
        self._form: Form[Any] | None = None
        self._head = b""
        self._reader: Reader[Any] | None = None
        self._target: memoryview | None = None
        self._given = self._scratch
        self._left = 0
        self._keep = True

    async def request(
        self, start: bytes, rest: Iterable[Buffer], form: Form[T], patience: float
    ) -> T:
        """Send a request and wait for its answer."""
        self.reusable = False
        if not self._open:
            raise ConnectionLost(self._lost)
        self.deadline = self._loop.time() + patience
        waiter: asyncio.Future[T] = self._loop.create_future()
        self._waiter, self._form = waiter, form
        try:
            self._transport.write(start)
            for part in rest:
                if not await self._send(part, waiter, patience):
                    self._keep = False  # it did not wait for the whole request
                    break
            result = await waiter
            self.reusable = self._keep and not (self._paused or self._lost)
            self.used = self._loop.time()
            return result
        finally:
            if waiter.done() and not waiter.cancelled():
                waiter.exception()  # seen, also when this was cancelled in the same turn
            self._waiter = None
            self._clear()

    async def _send(self, part: Buffer, waiter: asyncio.Future[Any], patience: float) -> bool:
        """Send a part as fast as it is taken; tell whether the answer is still to come."""
        view = memoryview(part)
        for at in range(0, len(view), _CHUNK):
            self._transport.write(view[at : at + _CHUNK])
            if self._paused and not waiter.done():
                self._room = self._loop.create_future()
                await self._room
                self.deadline = self._loop.time() + patience
            if waiter.done():
                return False
        return True

    def close(self, reason: str = "the client was closed") -> None:
        """Close the connection at once."""
        if self._open:
            self._lost = reason
            self._transport.abort()

    # What the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(0)
        self._open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._open = False
        self._lost = self._lost or (_reason(exc) if exc else "it closed the connection")
        self._ended(self)
        self._fail(ConnectionLost(self._lost))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._go_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        target = self._target
        if target is None or len(target) < _DIRECT:
            target = self._scratch
        self._given = target
        return target

    def buffer_updated(self, nbytes: int) -> None:
        reader = self._reader
        if reader is None:
            self._begin(bytes(self._scratch[:nbytes]))
        elif self._given is self._scratch:
            self._body(self._scratch[:nbytes])
        else:
            if self._filled(self._given, nbytes):
                self._step(reader)
            else:
                self.deadline = max(self.deadline, self._loop.time() + _STILL)

    # Reading

    def _begin(self, data: bytes) -> None:
        """Read the head of an answer, once it is there."""
        if self._form is None or self._waiter is None or self._waiter.done():
            self.close("it said something unasked")
            return
        searched = max(0, len(self._head) - 3)
        data = self._head = self._head + data if self._head else data
        end = data.find(b"\r\n\r\n", searched, _LONGEST_HEAD) + 4
        if end < 4:
            if len(data) >= _LONGEST_HEAD:
                self._fail(MalformedError("the answer's HTTP header is too long"))
            return
        self._head = b""
        try:
            status, size = self._understood(data[:end])
            if len(data) - end < size:
                self._left = size
                self._reader = self._form.parts(status, size)
                self._step(self._reader)
                self._body(memoryview(data)[end:])
            else:
                answer = self._form.whole(status, memoryview(data)[end : end + size])
                self._keep = self._keep and len(data) == end + size
                self._finish(answer)
        except Exception as exc:  # no memory, say
            self._fail(exc)

    def _understood(self, head: bytes) -> tuple[int, int]:
        """Take the status and the length of the body from a head."""
        ordinary = _ORDINARY.fullmatch(head)
        if ordinary is not None:
            return 200, int(ordinary[1])
        found = _HEAD.fullmatch(head)
        if found is None:
            raise MalformedError("the answer is not HTTP/1.1")
        status = int(found[1])
        lengths = []
        for name, value in _FIELD.findall(head):
            kind = name.lower()
            if kind == b"content-length":
                lengths.append(value)
            elif kind == b"connection":
                self._keep = self._keep and value.strip().lower() == b"keep-alive"
            else:
                lengths.append(b"")  # in chunks, say, of which nothing is known
        if len(lengths) == 1 and _LENGTH.fullmatch(lengths[0]):
            return status, int(lengths[0])
        if status != 200:
            self._keep = False
            return status, 0
        raise MalformedError("the answer does not tell its length")

    def _body(self, data: memoryview) -> None:
        """Put bytes where they belong."""
        while data:
            target, reader = self._target, self._reader
            if target is None or reader is None:
                self._keep = False  # nothing was asked of which this could be the answer
                return
            size = min(len(target), len(data))
            target[:size] = data[:size]
            data = data[size:]
            if not self._filled(target, size):
                self.deadline = max(self.deadline, self._loop.time() + _STILL)
                return
            self._step(reader)

    def _filled(self, target: memoryview, size: int) -> bool:
        """Count bytes that are in their place now; tell whether the place is full."""
        self._left -= size
        full = size == len(target)
        self._target = None if full else target[size:]
        # BytesIO gives its bytes away without a copy only when nobody looks into them.
        with contextlib.suppress(BufferError):  # uvloop lets go of it after this
            target.release()
        return full

    def _step(self, reader: Reader[Any]) -> None:
        """Ask the reader for the place of the next bytes, or take what it has made."""
        try:
            while not (target := memoryview(next(reader))):
                pass
            if len(target) > self._left:
                raise MalformedError("the answer is shorter than its message says")
            self._target = target
        except StopIteration as end:
            self._keep = self._keep and not self._left
            self._finish(end.value)
        except Exception as exc:  # no memory, say
            self._fail(exc)

    def _finish(self, answer: Any) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)
            self._go_on()

    def _fail(self, exc: Exception) -> None:
        if not isinstance(exc, MalformedError | ConnectionLost):
            exc = MalformedError(f"there is no room for the answer: {_reason(exc)}")
        self._target = None
        self._keep = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(exc)
        self._go_on()
        self.close(str(exc))

    def _go_on(self) -> None:
        """Let a sender look again at what there is to do."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


def _reason(exc: Exception) -> str:
    return getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
