"""One Socket.IO connection to a runtime: python-socketio's client, held to what we expect of it.

Whoever controls a sandbox controls what arrives here. Whatever is not a valid packet ends the
connection with a MalformedError; what is, is handed on in its order, and nothing waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import engineio
import socketio
from engineio import base_client, packet

from agentix.client.attempt import CONNECT, Attempt
from agentix.client.http import SILENCE, ConnectionLost, NotConnected, Unsettled
from agentix.wire.errors import MalformedError
from agentix.wire.packets import StrictPacket, event_packet
from agentix.wire.protocol import CONTENT_TYPE, MAX_EVENT
from agentix.wire.silence import watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SILENT: Final = logging.Logger("agentix.socketio", logging.CRITICAL + 1)
"""Its messages would tell a hostile text in full, and it would set up logging as it likes."""

_OPENING: Final = 30.0
"""Seconds until a connection is open, once somebody has taken it."""

_FAREWELL: Final = 1.0
_INSIST: Final = 0.1
_OPEN: Final = "0{"
_LONGEST_TEXT: Final = 4096
"""Characters of the message that opens a connection, the only text of any length."""

_TEXTS: Final = frozenset({"1", "2", "6"})
"""The others: the end, a ping, and nothing at all."""

_MOST_QUEUED: Final = 4096
"""Packets that may wait here to be sent; a flood of pings must not make more of them."""

_PATIENCE: Final = 300.0
"""Seconds of silence, beyond the time between two pings, that are taken for the end."""

_PINGS: Final = 25.0


class Refused(ConnectionLost):
    """The runtime answered, but does not take the connection."""

    def __init__(self, status: int) -> None:
        super().__init__(f"it answered HTTP {status}")
        self.status = status


class NoReplyError(socketio.exceptions.TimeoutError, TimeoutError):  # type: ignore[misc]
    """No reply came in time; as asyncio's users expect it, and python-socketio's."""


class _Socket(aiohttp.ClientWebSocketResponse):
    """A websocket whose text messages are what they have to be; the library would parse any."""

    fault: MalformedError | None = None

    def watch(self) -> None:
        """Have it end where the other side's machine is gone."""
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            watch(connection.transport, SILENCE)

    async def receive(self, timeout: float | None = None) -> aiohttp.WSMessage:  # noqa: ASYNC109
        message = await super().receive(timeout)
        if message.type is aiohttp.WSMsgType.TEXT and not (
            message.data in _TEXTS
            or (message.data.startswith(_OPEN) and len(message.data) < _LONGEST_TEXT)
        ):
            self.fault = MalformedError("a text message is none that is expected")
        elif isinstance(message.data, aiohttp.WebSocketError):
            self.fault = MalformedError(f"a message is none: {message.data}")
        if self.fault is not None:
            raise self.fault
        return message


class _EngineIO(engineio.AsyncClient):  # type: ignore[misc]
    """The transport; its messages are taken in the loop that reads them, one after the other."""

    async def _receive_packet(self, pkt: Any) -> None:
        reading = asyncio.current_task()
        if reading is not None and reading.cancelling():
            # Before Python 3.12, wait_for may lose this where a message comes at the same time.
            raise asyncio.CancelledError
        kind = pkt.packet_type
        if kind == packet.MESSAGE:
            await self.handlers["message"](pkt.data)
        elif kind in (packet.CLOSE, packet.NOOP) or (
            kind == packet.PING and self.queue.qsize() < _MOST_QUEUED
        ):
            await super()._receive_packet(pkt)
        else:
            raise MalformedError("a packet is none that is expected")


class _Client(socketio.AsyncClient):  # type: ignore[misc]
    """The client, which hands events on instead of looking for handlers."""

    def __init__(self, receive: Callable[[str, str, list[Any]], None], **options: Any) -> None:
        super().__init__(**options)
        self._receive = receive
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once all namespaces are connected, or will not be."""

    def _engineio_client_class(self) -> type[engineio.AsyncClient]:
        return _EngineIO

    async def _handle_eio_connect(self) -> None:
        # What the other side wishes for is not what decides how patient this one is.
        self.eio.ping_interval, self.eio.ping_timeout = _PINGS, _PATIENCE
        await super()._handle_eio_connect()

    async def _handle_connect(self, namespace: str, data: dict[str, Any] | None) -> None:
        await super()._handle_connect(namespace, data)
        if len(self.namespaces) == len(self.connection_namespaces) and not self.complete.done():
            self.complete.set_result(None)

    async def _handle_error(self, namespace: str, data: Any) -> None:
        raise MalformedError("a namespace is refused")

    async def _handle_event(self, namespace: str, id: int | None, data: list[Any]) -> None:  # noqa: A002
        self._receive(namespace, data[0], data[1:])

    async def _trigger_event(self, event: str, namespace: str, *args: Any) -> None:
        """Do without the library's own events."""


class Link:
    """An open connection. ``lost`` is called once, with the reason, when it has ended."""

    def __init__(
        self,
        connector: aiohttp.BaseConnector,
        token: str | None,
        receive: Callable[[Link, str, str, list[Any]], None],
        lost: Callable[[Link, Exception], None],
    ) -> None:
        self._lost = lost
        headers = {"Content-Type": CONTENT_TYPE}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(self._connected)
        # Proxies are for the network; a runtime is never behind one.
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            trust_env=False,
            trace_configs=[trace],
            ws_response_class=self._make_socket,  # type: ignore[arg-type]
        )
        self._client = _Client(
            lambda namespace, event, data: receive(self, namespace, event, data),
            reconnection=False,
            serializer=StrictPacket,
            handle_sigint=False,
            logger=_SILENT,
            engineio_logger=_SILENT,
            http_session=self._session,
            request_timeout=_FAREWELL,
            timestamp_requests=False,
            websocket_extra_options={"max_msg_size": MAX_EVENT, "compress": 0},
        )
        self._socket: _Socket | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._opening = Attempt(CONNECT)
        self._open = False
        self._reason: Exception | None = None

    def _make_socket(self, *arguments: Any, **more: Any) -> _Socket:
        # The library drops it when the connection fails early; it has to be closed all the same.
        self._socket = _Socket(*arguments, **more)
        return self._socket

    async def open(self, url: str, namespaces: Sequence[str]) -> None:
        """Connect. Raises NotConnected, Refused, or MalformedError; then it is closed already."""
        client = self._client
        try:
            async with self._opening:
                await client.connect(
                    url, transports=["websocket"], namespaces=list(namespaces), wait=False
                )
                self._tasks = [client.eio.read_loop_task, client.eio.write_loop_task]
                self._tasks[0].add_done_callback(self._ended)
                if self._socket is not None:
                    self._socket.watch()
                await client.complete
                if self._reason is not None:  # it has ended in the same turn
                    raise self._reason
        except BaseException as exc:
            await self.close()
            if isinstance(exc, Exception):
                raise _reason(exc, self._fault()) from exc
            raise
        self._open = True

    async def _connected(self, *_: object) -> None:
        self._opening.allow(_OPENING)

    async def emit(self, namespace: str, event: str, *arguments: Any) -> None:
        """Send an event; it waits for nothing."""
        await self._client.eio.send(event_packet(namespace, event, *arguments))

    async def close(self) -> None:
        """Send what there is to send, and close it, in bounded time."""
        eio = self._client.eio
        self._open = False
        async with contextlib.AsyncExitStack() as ends:  # all of it, also if this is cancelled
            ends.push_async_callback(self._all_ended)
            ends.push_async_callback(self._session.close)
            ends.push_async_callback(self._close_socket)
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_FAREWELL):
                    if eio.state == "connected":
                        await eio.queue.join()
                    await self._client.disconnect()

    async def _close_socket(self) -> None:
        self._client.complete.cancel()
        for task in self._loops():
            task.cancel()
        # The library keeps a list of all clients that it takes for connected.
        with contextlib.suppress(ValueError):
            base_client.connected_clients.remove(self._client.eio)
        if self._socket is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_FAREWELL):
                    await self._socket.close()

    async def _all_ended(self) -> None:
        cancelled = None
        # Their wait_for loses a cancellation that comes together with what it waits for.
        while running := [task for task in self._loops() if not task.done()]:
            for task in running:
                task.cancel()
            try:
                await asyncio.wait(running, timeout=_INSIST)
            except asyncio.CancelledError as exc:  # all the same, they may not be left to wait
                cancelled = exc
        await asyncio.gather(*self._loops(), return_exceptions=True)
        if cancelled is not None:
            raise cancelled
        await asyncio.sleep(0)  # transports close in the loop's next turn

    def _loops(self) -> set[asyncio.Task[Any]]:
        """Give the library's tasks, which may have ended."""
        eio = self._client.eio
        return {one for one in (eio.read_loop_task, eio.write_loop_task, *self._tasks) if one}

    def _ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        fault = error if isinstance(error, MalformedError) else self._fault()
        self._reason = fault or ConnectionLost("it closed the connection")
        if not self._client.complete.done():
            self._client.complete.set_result(None)
        elif self._open:
            self._open = False
            self._lost(self, self._reason)

    def _fault(self) -> MalformedError | None:
        return None if self._socket is None else self._socket.fault


def _reason(exc: Exception, fault: MalformedError | None) -> Exception:
    """Say in our own words why no connection came about."""
    if fault is not None:
        return fault
    seen: BaseException | None = exc
    while seen is not None:
        if isinstance(seen, MalformedError | ConnectionLost):
            return seen
        if isinstance(seen, aiohttp.WSServerHandshakeError):
            return Refused(seen.status)
        if isinstance(seen, aiohttp.ClientConnectorError):
            return NotConnected(seen.os_error.strerror or str(seen.os_error))
        seen = seen.__cause__ or seen.__context__
    if isinstance(exc, TimeoutError):
        return NotConnected("it does not accept connections")
    if isinstance(exc, socketio.exceptions.SocketIOError | OSError):
        return Unsettled("it closed the connection")
    return MalformedError(f"it does not speak Socket.IO: {type(exc).__name__}")
