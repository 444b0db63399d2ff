"""Socket.IO: the connections of guests. Loaded only once there is one.

    /rpc     hello [client, guest id, seen, namespaces]   first; hello [guest id, seen] comes back
             ask [number, request]                        answer [number, answer] comes back;
             arrived [number]                             follows, so that it need not be kept
             reply [n, request, type, message, status, data]   both ways
             got [n]                                      both ways: items up to n have arrived
             settle [number]                              settled [n, number] comes, in its turn
             bye []                                       there will be no other connection
    others   <event> [n, request, data]                   both ways; request 0 wants no reply

Items are numbered in each direction (see ``agentix.wire.line``) and sent again over a new
connection. Requests and answers are those of HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import engineio
import engineio.exceptions
import socketio
from aiohttp import web
from socketio import packet

from agentix.wire import messages
from agentix.wire.errors import MalformedError
from agentix.wire.frames import MARK, PREFIX, body_head_size, body_prefix, payload_size
from agentix.wire.messages import Call, Follow, Leave, Pending
from agentix.wire.packets import StrictPacket, event_packet
from agentix.wire.protocol import CONTENT_TYPE, MAX_EVENT, MAX_INLINE
from agentix_runtime.parcel import Parcel, drop
from agentix_runtime.server.calls import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix.wire.frames import Buffer
    from agentix_runtime.server.call import Answer, Asking
    from agentix_runtime.server.calls import Request
    from agentix_runtime.server.events import Events, Guest

_PING_INTERVAL: Final = 25
_PING_TIMEOUT: Final = 300
"""A host that is busy for minutes has not gone away: connections tell that by their end."""

_FAREWELL: Final = 0.5
_OURS: Final = "/rpc"
_SAID: Final = {
    "hello": 4, "ask": 2, "arrived": 1, "got": 1, "reply": 6, "settle": 1, "bye": 0
}  # fmt: skip
"""What clients say in that namespace, and with how many arguments."""

_EVENT: Final = 3
"""The arguments of an event of any other namespace."""

_KINDS: Final = (packet.CONNECT, packet.DISCONNECT, packet.EVENT)


class _Connection:
    """One connection, of a guest from its first word on."""

    guest: Guest

    def __init__(self, sid: str) -> None:
        self.sid = sid
        self.asks: dict[int, Asking | None] = {}
        self.answers: list[tuple[int, bytes]] = []
        # The calls whose outcomes have been sent and not yet said to have arrived.
        self.told: dict[int, str] = {}
        self.got = 0
        self.pump: asyncio.Task[None] | None = None
        self.left: Callable[[], None] = _nothing

    def silence(self) -> None:
        """Send nothing more, and keep its client for gone.

        A client that is here anew has lost it, and the network may not tell that for minutes. What
        was sent on it would be lost; what still arrives on it was sent in its time.
        """
        if self.pump is not None:
            self.pump.cancel()
        self.left()
        self.left = _nothing


def _nothing() -> None:
    """Do nothing."""


_pings: ContextVar[list[asyncio.Task[Any]]] = ContextVar("pings")
"""What waits to ping the connection that is served in this context."""


class _EngineIO(engineio.AsyncServer):  # type: ignore[misc]
    """The transport, whose connections start nothing of their own but pings."""

    def start_background_task(self, target: Any, *args: Any, **options: Any) -> Any:
        task = super().start_background_task(target, *args, **options)
        pings = _pings.get()
        pings[:] = [*(ping for ping in pings if not ping.done()), task]
        return task

    async def _trigger_event(self, event: str, *args: Any, **options: Any) -> Any:
        if event == "message":
            return await self.handlers[event](*args)  # what it raises ends the connection
        return await super()._trigger_event(event, *args, **options)


class _SocketIO(socketio.AsyncServer):  # type: ignore[misc]
    """The protocol: events are handed on at once, and what goes wrong with one is told."""

    def __init__(
        self,
        receive: Callable[[str, str, str, list[Any]], None],
        left: Callable[[str], None],
        failed: Callable[[str, Exception], None],
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._receive = receive
        self._left = left
        self._failed = failed

    def _engineio_server_class(self) -> type[engineio.AsyncServer]:
        return _EngineIO

    async def _handle_eio_message(self, eio_sid: str, data: Any) -> None:
        try:
            await super()._handle_eio_message(eio_sid, data)
        except engineio.exceptions.EngineIOError:
            raise  # it has closed meanwhile
        except Exception as exc:
            self._failed(eio_sid, exc)
            raise engineio.exceptions.SocketIsClosedError from exc

    async def _trigger_event(self, event: str, namespace: str, *args: Any) -> Any:
        if event == "disconnect" and namespace == _OURS:
            eio_sid = self.manager.eio_sid_from_sid(args[0], namespace)
            try:
                self._left(eio_sid)
            except Exception as exc:
                self._failed(eio_sid, exc)
        return self.not_handled

    async def _handle_event(self, eio_sid: str, namespace: str, id: Any, data: list[Any]) -> None:  # noqa: A002
        if self.manager.sid_from_eio_sid(eio_sid, namespace) is None:
            raise MalformedError("an event is of a namespace that is not connected")
        self._receive(eio_sid, namespace, data[0], data[1:])


class _ClientPacket(StrictPacket):
    """A packet of those kinds that clients send."""

    def decode(self, encoded_packet: object) -> None:
        super().decode(encoded_packet)
        if self.packet_type not in _KINDS:
            raise MalformedError("a packet is of a kind that no client sends")


class Sockets:
    """Speaks Socket.IO on connections that the HTTP side hands over."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._connections: dict[str, _Connection] = {}
        silent = logging.Logger("agentix.socketio", logging.CRITICAL + 1)
        self._sio = _SocketIO(
            self._receive,
            self._left,
            self._failed,
            async_mode="aiohttp",
            serializer=_ClientPacket,
            namespaces="*",
            async_handlers=False,
            transports=["websocket"],
            ping_interval=_PING_INTERVAL,
            ping_timeout=_PING_TIMEOUT,
            max_http_buffer_size=MAX_EVENT,
            cors_allowed_origins=[],
            http_compression=False,
            monitor_clients=False,
            logger=silent,
            engineio_logger=silent,
        )
        self._web = web.Server(self._handle, access_log=None, handler_cancellation=True)

    def take_over(self, transport: asyncio.Transport, data: bytes) -> None:
        """Go on with a connection of which *data* has arrived."""
        if transport.is_closing():
            return
        protocol = self._web()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    async def close(self) -> None:
        """End all connections."""
        for connection in list(self._connections.values()):
            self._end(connection, for_good=True)
        await self._web.shutdown(timeout=_FAREWELL)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/socket.io/" or request.method != "GET":
            return web.Response(status=404, text="there is nothing here\n")
        if request.headers.get("Content-Type") != CONTENT_TYPE:
            return web.Response(status=426, text="the runtime speaks another protocol\n")
        pings: list[asyncio.Task[Any]] = []
        _pings.set(pings)
        try:
            response: web.StreamResponse = await self._sio.handle_request(request)
        finally:
            for ping in pings:  # which would keep all of the connection until its time has come
                ping.cancel()
        return response

    # What guests say

    def _receive(self, sid: str, namespace: str, event: str, arguments: list[Any]) -> None:
        ours = namespace == _OURS
        if ours and event not in _SAID:
            raise MalformedError("an event is none of those there are")
        if len(arguments) != (_SAID[event] if ours else _EVENT):
            raise MalformedError("an event has too many arguments, or too few")
        if ours and event == "hello":
            self._hello(sid, *arguments)
            return
        connection = self._connections.get(sid)
        if connection is None:
            raise MalformedError("a client does not say who it is")
        if ours:
            getattr(self, f"_{event}")(connection, *arguments)
        else:
            self._event(connection, namespace, event, *arguments)

    def _hello(self, sid: str, name: Any, known: Any, seen: Any, namespaces: Any) -> None:
        if sid in self._connections:
            raise MalformedError("a client says twice who it is")
        connection = _Connection(sid)
        guest = self._events.arrive(connection, name, known, seen, namespaces)
        for other in self._connections.values():
            if other.guest.name == guest.name:
                other.silence()
        connection.guest = guest
        self._connections[sid] = connection
        connection.left = self._events.calls.connected(guest.name)
        connection.got = guest.line.seen
        connection.pump = asyncio.get_running_loop().create_task(self._pump(connection, guest))

    def _ask(self, connection: _Connection, number: Any, body: Any) -> None:
        if type(number) is not int or type(body) is not bytes or number in connection.asks:
            raise MalformedError("a request is not one")
        head, request, payload = _taken_apart(body)
        connection.asks[number] = None

        def done(answer: Answer) -> None:
            if connection.asks.pop(number, ...) is ...:
                for _, part in answer.sections:
                    drop(part)
                return
            data, whole = _put_together(request, answer)
            if whole and answer.call:
                connection.told[number] = answer.call
            connection.answers.append((number, data))
            connection.guest.wake.set()

        asking = self._events.calls.ask(head, request, payload, done)
        if number in connection.asks:
            connection.asks[number] = asking

    def _arrived(self, connection: _Connection, number: Any) -> None:
        if (call := connection.told.pop(_number(number), None)) is not None:
            self._events.calls.arrived(call)

    def _got(self, connection: _Connection, number: Any) -> None:
        self._events.taken(connection.guest, number)

    def _reply(self, connection: _Connection, number: Any, *told: Any) -> None:
        self._events.reply(connection.guest, number, told)
        connection.guest.wake.set()

    def _event(
        self, connection: _Connection, namespace: str, event: str, number: Any, *told: Any
    ) -> None:
        self._events.event(connection.guest, namespace, event, number, *told)
        connection.guest.wake.set()

    def _settle(self, connection: _Connection, number: Any) -> None:
        connection.guest.send(_OURS, "settled", _number(number))

    def _bye(self, connection: _Connection) -> None:
        self._end(connection, for_good=True)

    # What guests are told

    async def _pump(self, connection: _Connection, guest: Guest) -> None:
        """Send what there is, whenever there is something."""
        await self._send(connection, _OURS, "hello", guest.id, guest.line.seen)
        guest.wake.set()
        while True:
            await guest.wake.wait()
            guest.wake.clear()
            if connection.got != guest.line.seen:
                connection.got = guest.line.seen
                await self._send(connection, _OURS, "got", connection.got)
            answers, connection.answers = connection.answers, []
            for number, data in answers:
                await self._send(connection, _OURS, "answer", number, data)
            for item in guest.line.unsent():
                arguments = (item.number, *item.arguments)
                await self._send(connection, item.namespace, item.event, *arguments)

    async def _send(
        self, connection: _Connection, namespace: str, event: str, *arguments: Any
    ) -> None:
        try:
            await self._sio.eio.send(connection.sid, event_packet(namespace, event, *arguments))
        except engineio.exceptions.SocketIsClosedError:
            await asyncio.Event().wait()  # until this task is ended, as it is about to be

    # Their end

    def _left(self, sid: str) -> None:
        if (connection := self._connections.get(sid)) is not None:
            self._end(connection, for_good=False)

    def _failed(self, sid: str, exc: Exception) -> None:
        """End a connection on which something was said that no client says, or that broke us."""
        level, why = logging.WARNING, str(exc)
        if not isinstance(exc, MalformedError):
            level, why = logging.ERROR, f"the runtime failed: {type(exc).__name__}: {exc}"
            asyncio.get_running_loop().call_exception_handler({"message": why, "exception": exc})
        self._events.note(f"a client's connection was ended: {why}", level)
        self._left(sid)

    def _end(self, connection: _Connection, for_good: bool) -> None:
        if self._connections.pop(connection.sid, None) is None:
            return
        asks = [asking for asking in connection.asks.values() if asking is not None]
        connection.asks.clear()
        for asking in asks:
            asking.leave()
        connection.silence()
        self._events.leave(connection.guest, connection, for_good=for_good)


def _number(value: Any) -> int:
    if type(value) is not int:
        raise MalformedError("a number is none")
    return value


def _taken_apart(body: bytes) -> tuple[bytes, Request, memoryview]:
    if len(body) < PREFIX.size:
        raise MalformedError("a request is too short to be one")
    begin = PREFIX.size + body_head_size(body)
    head = body[PREFIX.size : begin]
    request: Request = messages.load(head, REQUESTS)  # type: ignore[assignment]
    payload = memoryview(body)[begin:]
    size = payload_size(request.segments) if isinstance(request, Call) else 0
    if size != len(payload) or size > MAX_INLINE:
        raise MalformedError("a request is not as long as its message says")
    return head, request, payload


def _put_together(request: Request, answer: Answer) -> tuple[bytes, bool]:
    """Give the bytes of an answer; of a large one, that it is to be asked for elsewhere."""
    parts: list[Buffer] = [MARK.pack(answer.mark)]
    large = False
    for head, payload in answer.sections:
        if isinstance(payload, Parcel):
            payload.close()
            large = True
        else:
            parts += (body_prefix(head), payload)
    if large and not isinstance(request, Follow | Leave):
        return MARK.pack(answer.mark) + body_prefix(messages.dump(Pending(request.id))), False
    return b"".join(parts), True
