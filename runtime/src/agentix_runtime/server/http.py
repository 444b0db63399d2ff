"""The HTTP side of the runtime. It never runs the user's code, nor lets that code hold it up.

    GET  /health       how the runtime is
    POST /hold         no end of an answer: while it lasts, the sandbox is not given up
    POST /rpc          a request of agentix.wire.messages, and its answer
    GET  /socket.io/   the same requests and the events of namespaces, over Socket.IO

Every request needs the sandbox's secret. What is not Socket.IO is answered here, by no more HTTP
than it needs: a call passes without a task and without a copy of its own. Socket.IO is aiohttp's,
which is loaded when it is first asked for.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import json
import os
import platform
import time
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, cast

from agentix.wire.errors import MalformedError
from agentix.wire.frames import MARK, PREFIX
from agentix.wire.protocol import CONTENT_TYPE, PROTOCOL
from agentix.wire.silence import watch
from agentix_runtime.parcel import Parcel, drop
from agentix_runtime.server import heads
from agentix_runtime.server.bodies import LARGEST, Body

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix.wire.frames import Buffer
    from agentix_runtime.server.call import Answer, Asking
    from agentix_runtime.server.calls import Calls

STRANGER: Final = 30.0
"""Seconds in which a connection has to say the secret."""

_SILENCE: Final = 30.0
"""Seconds without a sign of life from a client's machine, after which it is gone."""

_LINGER: Final = 1.0
_PIPELINED: Final = 64 << 10

_CONTENT_TYPE: Final = CONTENT_TYPE.encode()
_OK: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n"
)


class Server:
    """Answers requests; as a protocol factory it makes one Connection after the other."""

    def __init__(
        self,
        calls: Calls,
        secret: str,
        worker_pid: Callable[[], int | None],
        hand_over: Callable[[asyncio.Transport, bytes], None] | None = None,
        hold: Callable[[asyncio.Transport], bool] | None = None,
        *,
        stranger: float = STRANGER,
    ) -> None:
        self.calls = calls
        self.credentials = f"Bearer {secret}".encode()
        self.connections: set[Connection] = set()
        self.hand_over = hand_over
        self.hold = hold
        self._worker_pid = worker_pid
        self._stranger = stranger
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._stranger / 3, self._look_after)

    def __call__(self) -> Connection:
        """Make a connection's protocol."""
        return Connection(self)

    @functools.cached_property
    def about(self) -> dict[str, object]:
        """What the runtime is."""
        return {
            "status": "ok",
            "protocol": PROTOCOL,
            "agentix": version("agentix"),
            "python": platform.python_version(),
            "libc": " ".join(platform.libc_ver()),
            "pid": os.getpid(),
        }

    def health(self) -> dict[str, object]:
        """Tell how the runtime is."""
        return self.about | {"worker": {"pid": self._worker_pid()}}

    def close(self) -> None:
        """Close all connections."""
        self._timer.cancel()
        for connection in list(self.connections):
            connection.abort()

    def _look_after(self) -> None:
        self._timer = self._loop.call_later(self._stranger / 3, self._look_after)
        for connection in list(self.connections):
            connection.expire(time.monotonic() - self._stranger)


class Connection(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    _transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self._server = server
        self._since = time.monotonic()
        self._trusted = False
        self._held = b""
        self._body: Body | None = None
        # An answer is due; no request is taken before it has been sent.
        self._busy = False
        self._asking: Asking | None = None
        self._sending: asyncio.Task[None] | None = None
        self._crowded = False
        self._last = False
        self._ended = False
        # The call whose outcome was the last answer: a next request says that it has arrived.
        self._told = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._server.connections.add(self)
        watch(self._transport, _SILENCE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything; calls go on."""
        self._ended = True
        self._server.connections.discard(self)
        if self._asking is not None:
            self._asking.leave()
        if self._body is not None:
            self._body.close()

    def close(self) -> None:
        """Take no more requests, and end the connection once the other side has, or soon."""
        if not self._ended:
            self._ended = True
            # Closing it now, before all that was sent here is read, could cost the last answer.
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(_LINGER, self._transport.abort)

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    def expire(self, since: float) -> None:
        """End it if it has not said the secret since then."""
        if not self._trusted and self._since < since:
            self._transport.abort()

    def pause_writing(self) -> None:
        """Take no more requests while answers are not taken."""
        self._crowded = True

    def resume_writing(self) -> None:
        """Go on."""
        self._crowded = False
        self._next()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, a request or a part of one."""
        if self._ended:
            return
        if self._held:
            data = self._held + data
            self._held = b""
        try:
            if self._body is None:
                if self._busy or self._crowded:
                    self._hold(data)
                    return
                data = self._take_head(data)
            if self._body is not None and (data or not self._body.left):
                self._take_body(self._body, data)
        except MalformedError as exc:
            self._refuse(400, f"{exc}\n")
        except OSError as exc:
            self._refuse(503, f"there is no room for the request: {exc.strerror}\n")

    def _hold(self, data: bytes) -> None:
        self._held = data
        if len(data) > _PIPELINED:
            self._transport.pause_reading()

    def _next(self) -> None:
        """Go on with what has arrived in the meantime."""
        if self._held and not (self._busy or self._crowded or self._ended):
            if len(self._held) > _PIPELINED:
                self._transport.resume_reading()
            self.data_received(b"")

    def _take_head(self, data: bytes) -> bytes:
        """Take a request's head; give what follows it."""
        end = data.find(heads.END)
        if end > heads.LONGEST or (end < 0 and len(data) > heads.LONGEST):
            raise MalformedError("the head of the request is too long")
        if end < 0:
            self._held = data
            return b""
        head = heads.parse(data[:end])
        given = head.headers.get(b"authorization", b"")
        if not hmac.compare_digest(given, self._server.credentials):
            what = "this runtime needs its sandbox's secret\n"
            self._refuse(401, "" if head.method == b"HEAD" else what)
            return b""
        self._trusted = True
        self._last = head.headers.get(b"connection", b"").lower() == b"close"
        if head.method == b"POST" and head.path == b"/rpc":
            if head.headers.get(b"content-type") != _CONTENT_TYPE:
                self._tell(426, self._server.about)
            elif head.length > LARGEST:
                self._refuse(413, "the arguments are larger than calls may have\n")
            else:
                if self._told:
                    self._server.calls.arrived(self._told)
                    self._told = ""
                self._body = Body(head.length)
                return data[end + len(heads.END) :]
        elif head.method == b"GET" and head.path == b"/health" and not head.length:
            self._tell(200, self._server.health())
            self._held = data[end + len(heads.END) :]
            self._answered()
        elif head.method == b"GET" and head.path == b"/socket.io/" and self._server.hand_over:
            self._ended = True  # here; the transport has another protocol from now on
            self._server.connections.discard(self)
            self._server.hand_over(self._transport, data)
        elif head.method == b"POST" and head.path == b"/hold" and self._server.hold:
            if head.length or len(data) > end + len(heads.END):
                raise MalformedError("who holds a sandbox has nothing else to say")
            if self._server.hold(self._transport):
                self._ended = True  # as above
                self._server.connections.discard(self)
            else:
                self._refuse(503, "as many hosts as can be hold this sandbox already\n")
        else:
            self._refuse(404, "" if head.method == b"HEAD" else "there is nothing here\n")
        return b""

    def _take_body(self, body: Body, data: bytes) -> None:
        if len(data) > body.left:
            self._held = data[body.left :]
            data = data[: body.left]
        request = body.feed(data)
        if request is None:
            return
        self._body = None
        self._busy = True
        asking = self._server.calls.ask(body.head, request, body.payload(), self._answer)
        if self._busy:
            self._asking = asking

    def _answer(self, answer: Answer) -> None:
        """Send an answer; what is in shared memory goes to the socket inside the kernel."""
        self._asking = None
        self._told = answer.call
        mark = MARK.pack(answer.mark)
        parts: list[Buffer] = [mark]
        parcels = False
        size = MARK.size
        for head, payload in answer.sections:
            parts += (PREFIX.pack(len(head)), head)
            size += PREFIX.size + len(head)
            if isinstance(payload, Parcel):
                parcels = True
                size += payload.size
            elif payload:
                parts.append(payload)
                size += len(payload)
        if self._ended:
            for _, payload in answer.sections:
                drop(payload)
        elif parcels:
            self._transport.write(_OK % size + mark)
            self._sending = asyncio.get_running_loop().create_task(self._send(answer))
        else:
            parts[0] = _OK % size + mark
            self._transport.write(b"".join(parts))
            self._answered()

    async def _send(self, answer: Answer) -> None:
        """Send sections of which some are parcels."""
        loop = asyncio.get_running_loop()
        self._server.calls.sending(answer.call, begins=True)
        try:
            for head, payload in answer.sections:
                self._transport.write(PREFIX.pack(len(head)) + head)
                if isinstance(payload, Parcel):
                    with open(payload.fd, "rb", buffering=0, closefd=False) as file:  # noqa: ASYNC230
                        await loop.sendfile(self._transport, file, 0, payload.size)
                elif payload:
                    self._transport.write(payload)
        except (OSError, RuntimeError):  # the caller has gone away
            self._transport.abort()
        finally:
            self._server.calls.sending(answer.call, begins=False)
            for _, payload in answer.sections:
                drop(payload)
            self._sending = None
        self._answered()

    def _answered(self) -> None:
        self._busy = False
        if self._last:
            self.close()
        elif self._held:
            asyncio.get_running_loop().call_soon(self._next)

    def _tell(self, status: int, what: dict[str, object]) -> None:
        self._write(status, "application/json", json.dumps(what).encode())
        if status != 200:
            self.close()

    def _refuse(self, status: int, text: str) -> None:
        """Answer that a request is not taken, and take no more."""
        self._write(status, "text/plain; charset=utf-8", text.encode())
        if self._body is not None:
            self._body.close()
            self._body = None
        self.close()

    def _write(self, status: int, kind: str, body: bytes) -> None:
        close = "" if status == 200 else "Connection: close\r\n"
        self._transport.write(
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {kind}\r\n"
            f"{close}Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
