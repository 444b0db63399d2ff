"""Socket.IO to one runtime: requests that outlast a short HTTP answer, and the namespaces' events.

The connection is made when something needs it, and made again when it breaks. Requests that were
under way on it raise ConnectionLost, for their senders to ask again; events go on where they were.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NoReturn

from agentix.client.held_socket import HeldSocket
from agentix.client.http import ConnectionLost, NotConnected, Unsettled
from agentix.client.namespaces import Namespaces, Reply
from agentix.errors import RemoteSioError, RuntimeUnreachable
from agentix.text import plain as printable
from agentix.wire import plain
from agentix.wire.errors import MalformedError
from agentix.wire.line import Line
from agentix.wire.protocol import MAX_ID, MAX_NAME, MAX_SIGNAL, MAX_TARGET, MAX_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import aiohttp

    from agentix.client.connection import Connection
    from agentix.client.link import Link
    from agentix.client.url import RuntimeURL
    from agentix.sio import AsyncClientNamespace

_log = logging.getLogger("agentix.client")

_OURS: Final = "/rpc"
_AGAIN: Final = (0.0, 0.05, 0.1, 0.2, *[0.25] * 6)
"""Pauses before the attempts to connect again, two seconds in all."""

_GIVE_UP: Final = 2.0
_GIVE_UP_NEW: Final = 1.0
"""Seconds after which no other attempt is begun, where each takes long; the first time, sooner."""

_HOLD: Final = 30.0
"""Seconds for which the runtime keeps a client's events, and attempts go on for their sake."""

_HELLO: Final = 10.0
_SETTLE: Final = 5.0
_FAREWELL: Final = 1.0
_CALL: Final = 60.0
"""The timeout of a ``call``, if it has no other; the same as python-socketio's."""


class Events:
    """The Socket.IO side of one client; of one loop, in which everything here happens.

    ``name`` is how the client calls itself. ``connection`` tells in words why it is refused.
    """

    def __init__(
        self, url: RuntimeURL, token: str | None, name: str, connection: Connection
    ) -> None:
        self._url = url
        self._token = token
        self._name = name
        self._connection = connection
        self._namespaces: Namespaces | None = None
        self._socket: HeldSocket | None = None
        self._link: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pumping: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        # A connection on which the first word is still to come.
        self._meeting: tuple[Link, asyncio.Future[None]] | None = None
        # What the runtime calls this client; empty until they have met.
        self._known = ""
        self._line = Line()
        self._got = 0
        self._numbers = count(1)
        self._asks: dict[int, asyncio.Future[bytes]] = {}
        self._calls: dict[int, asyncio.Future[Reply]] = {}
        self._settling: dict[int, asyncio.Future[bool]] = {}
        self._begun = False
        self._closed = False

    # For the client

    def register(
        self, namespace: AsyncClientNamespace, here: Callable[[], Events] | None = None
    ) -> None:
        """Have a namespace's handlers called, and let it send events: by what *here* gives then.

        Raises RuntimeError once there has been a call, and TypeError or ValueError for what cannot
        be registered.
        """
        if self._begun or self._closed:
            raise RuntimeError(
                f"cannot register {type(namespace).__qualname__}: it is too late; register "
                "namespaces before the first call"
            )
        if self._namespaces is None:
            self._namespaces = Namespaces(self._reply, self._wake.set)
        self._namespaces.add(namespace, _Client(here or (lambda: self), namespace))

    async def ready(self, target: str) -> None:
        """See that the namespaces are connected before something is called that may use them.

        Raises RuntimeUnreachable, which names *target*.
        """
        self._begun = True
        if self._namespaces is not None and self._link is None:
            await self._reached(target)

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._link is not None

    def prepare(self) -> None:
        """Begin to connect; what comes of it shows in time."""
        if self._link is None and self._opening is None and not self._closed:
            self._begun = True
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(self._opened)

    async def ask(self, request: bytes) -> bytes:
        """Send a request, and return its answer, both as they are over HTTP.

        Raises ConnectionLost: the request may have arrived, and is to be sent again. Raises
        RuntimeUnreachable if that is of no use, and MalformedError for what is no answer.
        """
        self._begun = True
        link = await self._linked()
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asks[number] = answer
        try:
            await link.emit(_OURS, "ask", number, request)
            data = await answer
            await link.emit(_OURS, "arrived", number)
            return data
        finally:
            self._asks.pop(number, None)

    async def settled(self) -> None:
        """Wait until the handlers of all events have begun that the sandbox has sent by now.

        Bounded; and nothing to wait for where no namespace is registered.
        """
        if self._namespaces is None:
            return
        lost = (TimeoutError, ConnectionLost, MalformedError, RuntimeUnreachable, RuntimeError)
        with contextlib.suppress(*lost):
            async with asyncio.timeout(_SETTLE):
                while not await self._settle(await self._linked()):
                    pass

    async def _settle(self, link: Link) -> bool:
        """Have the sandbox's last event told; ``False`` if the connection broke meanwhile."""
        number = next(self._numbers)
        settled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._settling[number] = settled
        try:
            await link.emit(_OURS, "settle", number)
            return await settled
        finally:
            del self._settling[number]

    async def close(self) -> None:
        """Send what waits to be sent, say farewell and close everything, in bounded time."""
        if self._closed:
            return
        async with contextlib.AsyncExitStack() as ends:  # all of it, also if this is cancelled
            ends.push_async_callback(self._end)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FAREWELL):
                    while self._link is not None and not self._line.empty:
                        self._room.clear()
                        await self._room.wait()

    async def _end(self) -> None:
        self._closed = True
        every = (self._opening, self._pumping, *self._tasks)
        tasks: list[asyncio.Task[Any]] = [one for one in every if one is not None]
        for task in tasks:
            task.cancel()
        self._fail(ConnectionLost("the client was closed"))
        async with contextlib.AsyncExitStack() as ends:
            ends.push_async_callback(self._disconnect)
            ends.push_async_callback(_all_ended, tasks)
            if self._namespaces is not None:
                self._namespaces.cancel()
                if self._link is not None:
                    self._namespaces.tell("disconnect", "client disconnect")
                await self._namespaces.close(_FAREWELL)

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        try:
            if link is not None:
                await link.emit(_OURS, "bye")
                await link.close()
        finally:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    # For namespaces

    async def send(self, namespace: str, event: str, data: Any) -> None:
        """Send an event to the sandbox."""
        await self._put(namespace, event, 0, plain.dump(data))

    async def call(self, namespace: str, event: str, data: Any, timeout: float | None) -> Any:  # noqa: ASYNC109
        """Send an event to the sandbox, and give what its handler there returns."""
        payload = plain.dump(data)
        seconds = _CALL if timeout is None else timeout
        number = next(self._numbers)
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._calls[number] = reply
        try:
            async with asyncio.timeout(seconds):
                await self._put(namespace, event, number, payload)
                name, text, status, answer = await reply
        except TimeoutError:
            raise _timeout(
                f"no reply from the sandbox to {event!r} of {namespace} within {seconds:g} s"
            ) from None
        except ConnectionLost as exc:
            raise self._connection.unreachable(exc, f"{event} of {namespace}") from exc
        finally:
            self._calls.pop(number, None)
            if reply.done() and not reply.cancelled():
                reply.exception()
        if name:
            message = printable(text, None, keep="\n\t")
            raise RemoteSioError(printable(name, MAX_TARGET), message, status)
        try:
            return plain.load(answer)
        except MalformedError as exc:
            raise RemoteSioError("MalformedError", str(exc)) from exc

    async def _put(self, namespace: str, event: str, request: int, payload: bytes) -> None:
        self._begun = True
        await self._reached(f"{event} of {namespace}")
        while self._line.crowded and self._link is not None:
            self._room.clear()
            await self._room.wait()
        if self._closed:
            raise RuntimeError(f"the client of {self._url.text} is closed")
        self._line.add(namespace, event, request, payload, size=len(payload))
        self._wake.set()

    def _reply(self, request: int, reply: Reply) -> None:
        self._line.add(_OURS, "reply", request, *reply, size=len(reply[-1]))
        self._wake.set()

    # The connection

    async def _reached(self, target: str) -> None:
        """See that there is a connection, or raise RuntimeUnreachable."""
        try:
            await self._linked()
        except ConnectionLost as exc:
            raise self._connection.unreachable(exc, target) from exc
        except MalformedError as exc:
            raise self._connection.error(target, "MalformedAnswer", str(exc)) from exc
        except RuntimeUnreachable as exc:
            raise RuntimeUnreachable(exc.error, target=target) from exc.__cause__

    async def _linked(self) -> Link:
        """Give the connection, making one if there is none."""
        if self._closed:
            raise RuntimeError(f"the client of {self._url.text} is closed")
        if self._link is not None:
            return self._link
        self.prepare()
        opening = self._opening
        assert opening is not None  # noqa: S101
        await asyncio.wait([opening])  # which goes on for others if this is cancelled
        if opening.cancelled():
            raise ConnectionLost("the client was closed")
        return opening.result()

    def _opened(self, task: asyncio.Task[Link]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # seen, also when nobody waits for it any more

    async def _open(self) -> Link:
        """Connect; where there is or has been somebody, try for a while."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (_GIVE_UP if self._known else _GIVE_UP_NEW)
        for pause in _AGAIN:
            await asyncio.sleep(pause)
            try:
                return await self._connect()
            except (ConnectionLost, MalformedError) as exc:
                if isinstance(exc, MalformedError) or getattr(exc, "status", None) is not None:
                    await self._refused(exc)
                lost = exc if isinstance(exc, NotConnected) else Unsettled(str(exc))
                if not (self._known or isinstance(lost, Unsettled)) or loop.time() >= end:
                    break
        self._fail(lost)
        raise lost

    async def _refused(self, exc: Exception) -> NoReturn:
        """Raise why it is of no use to try again."""
        self._fail(exc)
        if not isinstance(exc, MalformedError):
            await self._connection.health()  # which says it in words
        raise exc

    async def _connect(self) -> Link:
        module = await asyncio.to_thread(importlib.import_module, "agentix.client.link")
        try:
            connector = self._connector()
        except OSError as exc:
            raise NotConnected(exc.strerror or str(exc)) from exc
        names = self._namespaces.names if self._namespaces is not None else []
        link: Link = module.Link(connector, self._token, self._receive, self._lost)
        await link.open(self._url.base, [_OURS, *names])
        met: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._meeting = link, met
        try:
            await link.emit(_OURS, "hello", self._name, self._known, self._line.seen, names)
            async with asyncio.timeout(_HELLO):
                await met
        except BaseException as exc:
            if self._link is link:
                self._link = None
            await link.close()
            if isinstance(exc, TimeoutError):
                raise NotConnected("it does not answer") from None
            raise
        finally:
            self._meeting = None
        if self._link is not link:
            raise ConnectionLost("it closed the connection")
        self._wake.set()
        self._pumping = asyncio.get_running_loop().create_task(self._pump(link))
        if self._namespaces is not None:
            self._namespaces.tell("connect")
        return link

    def _connector(self) -> aiohttp.BaseConnector:
        import aiohttp

        if self._url.socket is None:
            return aiohttp.TCPConnector()
        if self._socket is None:
            self._socket = HeldSocket(self._url.socket)
        return aiohttp.UnixConnector(self._socket.path)

    def _start_over(self, known: str) -> None:
        """Begin anew with a runtime that does not know this client, or not any more."""
        if self._known:
            what = ConnectionLost("it has forgotten this client, which was away for too long")
            for reply in self._calls.values():
                if not reply.done():
                    reply.set_exception(what)
            if not self._line.empty:
                _log.warning("events were lost on their way to %s: %s", self._url.text, what)
            self._line = Line()
        self._known = known

    async def _pump(self, link: Link) -> None:
        """Send what there is, whenever there is something."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            busy = self._namespaces is not None and self._namespaces.busy
            if self._got != self._line.seen and not busy:
                self._got = self._line.seen
                await link.emit(_OURS, "got", self._got)
            for item in self._line.unsent():
                await link.emit(item.namespace, item.event, item.number, *item.arguments)

    def _lost(self, link: Link, reason: Exception) -> None:
        """Know that the connection has ended."""
        if self._meeting is not None and self._meeting[0] is link:
            met = self._meeting[1]
            if not met.done():
                met.set_exception(reason)
        if self._link is not link:
            return
        self._link = None
        self._room.set()
        if self._pumping is not None:
            self._pumping.cancel()
        self._start(link.close())
        for answer in self._asks.values():
            if not answer.done():
                answer.set_exception(reason)
        self._unsettle()
        if isinstance(reason, MalformedError):
            # What was sent cannot be relied upon; whoever needs a connection may have another.
            self._fail(reason)
            text = printable(str(reason), 500)
            _log.error("the events of the runtime at %s have ended: %s", self._url.text, text)
        if self._namespaces is not None:
            self._namespaces.tell("disconnect", "transport error")
            if not isinstance(reason, MalformedError):
                self._start(self._hold())

    async def _hold(self) -> None:
        """Connect again for the sake of the events that wait in the sandbox."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _HOLD
        while not self._closed and loop.time() < end:
            try:
                await self._linked()
                return
            except (MalformedError, RuntimeUnreachable):
                return
            except ConnectionLost:
                await asyncio.sleep(1.0)

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _fail(self, reason: Exception) -> None:
        """Fail whatever waits for the sandbox."""
        if isinstance(reason, MalformedError):
            reason = ConnectionLost(f"what it sends is not valid: {reason}")
        waiting: list[asyncio.Future[Any]] = [*self._asks.values(), *self._calls.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(reason)
        self._unsettle()
        self._room.set()

    def _unsettle(self) -> None:
        for settled in self._settling.values():
            if not settled.done():
                settled.set_result(False)

    # What the runtime says; it may be anything

    def _receive(self, link: Link, namespace: str, event: str, arguments: list[Any]) -> None:
        if self._link is not link:
            if self._meeting is not None and self._meeting[0] is link:
                if (namespace, event) != (_OURS, "hello"):
                    raise MalformedError("an event came before its time")
                self._meet(*self._meeting, arguments)
            return
        if namespace != _OURS:
            number, request, data = _of(arguments, int, int, bytes)
            if request < 0 or len(data) > MAX_SIGNAL:
                raise MalformedError("an event is not valid")
            if self._namespaces is None:
                raise MalformedError("an event came that nobody can have asked for")
            if self._line.arrived(number):
                self._namespaces.begin(namespace, event, request, data)
        elif event == "answer":
            number, data = _of(arguments, int, bytes)
            answer = self._asks.get(number)
            if answer is not None and not answer.done():
                answer.set_result(data)
        elif event == "got":
            self._line.taken(*_of(arguments, int))
            self._room.set()
        elif event == "reply":
            self._replied(arguments)
        elif event == "settled":
            number, asked = _of(arguments, int, int)
            self._line.arrived(number)
            settled = self._settling.get(asked)
            if settled is not None and not settled.done():
                settled.set_result(True)
        else:
            raise MalformedError("an event is none of those there are")
        self._wake.set()

    def _meet(self, link: Link, met: asyncio.Future[None], arguments: list[Any]) -> None:
        """Begin where the connection before has ended."""
        known, seen = _of(arguments, str, int)
        if not 0 < len(known) <= MAX_ID:
            raise MalformedError("the runtime does not say who it takes this client for")
        if known != self._known:
            self._start_over(known)
        self._line.resume(seen)
        self._got = self._line.seen
        self._link = link
        if not met.done():
            met.set_result(None)

    def _replied(self, arguments: list[Any]) -> None:
        number, request, name, text, status, data = _of(
            arguments, int, int, str, str, (int, type(None)), bytes
        )
        if len(name) > MAX_TARGET or len(text) > MAX_TEXT or len(data) > MAX_SIGNAL:
            raise MalformedError("a reply is longer than replies may be")
        if self._line.arrived(number):
            reply = self._calls.get(request)
            if reply is not None and not reply.done():
                reply.set_result((name, text, status, data))


class _Client:
    """What a namespace has for its client: python-socketio's methods, as far as they make sense."""

    def __init__(self, here: Callable[[], Events], namespace: AsyncClientNamespace) -> None:
        self._here = here
        self._namespace = namespace

    @property
    def connected(self) -> bool:
        """Whether there is a connection now, for the loop that asks."""
        try:
            return self._here().connected
        except RuntimeError:
            return False

    async def emit(
        self,
        event: str,
        data: Any = None,
        namespace: str | None = None,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        """Send an event; a callback gets what the sandbox's handler returns."""
        name, event = self._checked(namespace, event)
        if callback is None:
            await self._here().send(name, event, data)
        else:
            self._here()._start(self._call_back(name, event, data, callback))

    async def send(
        self,
        data: Any,
        namespace: str | None = None,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        """Send the event ``message``."""
        await self.emit("message", data, namespace, callback)

    async def call(
        self,
        event: str,
        data: Any = None,
        namespace: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - python-socketio's signature
    ) -> Any:
        """Send an event, and give what the sandbox's handler returns."""
        name, event = self._checked(namespace, event)
        return await self._here().call(name, event, data, timeout)

    async def disconnect(self) -> None:
        """Refuse to: the connection is the whole client's."""
        raise RuntimeError("a namespace cannot disconnect; close the client or sandbox instead")

    async def _call_back(
        self, name: str, event: str, data: Any, callback: Callable[..., Any]
    ) -> None:
        try:
            made = callback(await self._here().call(name, event, data, None))
            if asyncio.iscoroutine(made):
                await made
        except Exception:
            _log.exception("the callback of %r of %s failed", event, name)

    def _checked(self, namespace: str | None, event: Any) -> tuple[str, str]:
        own = self._namespace.namespace
        if namespace not in (None, own):
            raise ValueError(f"a namespace sends its own events: {own}, not {namespace}")
        if type(event) is not str or not 0 < len(event) <= MAX_NAME:
            raise ValueError(f"{event!r:.300} cannot be the name of an event")
        return own, event


def _of(arguments: list[Any], *kinds: Any) -> list[Any]:
    """Check the types of an event's arguments."""
    if len(arguments) != len(kinds):
        raise MalformedError("an event has too many arguments, or too few")
    for value, kind in zip(arguments, kinds, strict=True):
        if type(value) not in (kind if type(kind) is tuple else (kind,)):
            raise MalformedError("an event has an argument of another type")
    return arguments


async def _all_ended(tasks: list[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _timeout(text: str) -> TimeoutError:
    """Make the error that both asyncio's users and python-socketio's expect."""
    from agentix.client.link import NoReplyError

    return NoReplyError(text)
