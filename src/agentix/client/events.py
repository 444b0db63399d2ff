"""Socket.IO to one runtime: requests that outlast a short HTTP answer, and the namespaces' events.

The connection is made when something needs it, and made again when it breaks. Requests that were
under way on it raise ConnectionLost, for their senders to ask again; events go on where they were.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from agentix.client.http import ConnectionLost
from agentix.client.namespaces import Namespaces, Reply
from agentix.client.sender import Sender
from agentix.client.uplink import OURS, Uplink
from agentix.errors import RemoteSioError, RuntimeUnreachable
from agentix.text import plain as printable
from agentix.wire import plain
from agentix.wire.errors import MalformedError
from agentix.wire.line import Line
from agentix.wire.protocol import MAX_ID, MAX_SIGNAL, MAX_TARGET, MAX_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from agentix.client.connection import Connection
    from agentix.client.link import Link
    from agentix.client.url import RuntimeURL
    from agentix.sio import AsyncClientNamespace

_log = logging.getLogger("agentix.client")

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
        self._name = name
        self._connection = connection
        self._uplink = Uplink(url, token, connection, self)
        self._namespaces: Namespaces | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pumping: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self.known = ""
        """What the runtime calls this client; empty until they have met."""
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
        self._namespaces.add(namespace, Sender(here or (lambda: self), namespace))

    async def ready(self, target: str) -> None:
        """See that the namespaces are connected before something is called that may use them.

        Raises RuntimeUnreachable, which names *target*.
        """
        self._begun = True
        if self._namespaces is not None and self._uplink.link is None:
            await self._uplink.reached(target)

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._uplink.link is not None

    def prepare(self) -> None:
        """Begin to connect; what comes of it shows in time."""
        self._begun = True
        self._uplink.prepare()

    async def ask(self, request: bytes) -> bytes:
        """Send a request, and return its answer, both as they are over HTTP.

        Raises ConnectionLost: the request may have arrived, and is to be sent again. Raises
        RuntimeUnreachable if that is of no use, and MalformedError for what is no answer.
        """
        self._begun = True
        link = await self._uplink.linked()
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asks[number] = answer
        try:
            await link.emit(OURS, "ask", number, request)
            data = await answer
            await link.emit(OURS, "arrived", number)
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
                while not await self._settle(await self._uplink.linked()):
                    pass

    async def _settle(self, link: Link) -> bool:
        """Have the sandbox's last event told; ``False`` if the connection broke meanwhile."""
        number = next(self._numbers)
        settled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._settling[number] = settled
        try:
            await link.emit(OURS, "settle", number)
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
                    while self._uplink.link is not None and not self._line.empty:
                        self._room.clear()
                        await self._room.wait()

    async def _end(self) -> None:
        self._closed = True
        tasks = [*self._uplink.stop(), *self._tasks]
        if self._pumping is not None:
            tasks.append(self._pumping)
        for task in tasks:
            task.cancel()
        self.fail(ConnectionLost("the client was closed"))
        async with contextlib.AsyncExitStack() as ends:
            ends.push_async_callback(self._uplink.close)
            ends.push_async_callback(_all_ended, tasks)
            if self._namespaces is not None:
                self._namespaces.cancel()
                if self._uplink.link is not None:
                    self._namespaces.tell("disconnect", "client disconnect")
                await self._namespaces.close(_FAREWELL)

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
        await self._uplink.reached(f"{event} of {namespace}")
        while self._line.crowded and self._uplink.link is not None:
            self._room.clear()
            await self._room.wait()
        if self._closed:
            raise RuntimeError(f"the client of {self._url.text} is closed")
        self._line.add(namespace, event, request, payload, size=len(payload))
        self._wake.set()

    def _reply(self, request: int, reply: Reply) -> None:
        self._line.add(OURS, "reply", request, *reply, size=len(reply[-1]))
        self._wake.set()

    # The connection

    @property
    def names(self) -> list[str]:
        """The namespaces to connect."""
        return self._namespaces.names if self._namespaces is not None else []

    def greeting(self) -> tuple[Any, ...]:
        """Give what the first word says."""
        return self._name, self.known, self._line.seen, self.names

    def meet(self, arguments: list[Any]) -> None:
        """Begin where the connection before has ended."""
        known, seen = _of(arguments, str, int)
        if not 0 < len(known) <= MAX_ID:
            raise MalformedError("the runtime does not say who it takes this client for")
        if known != self.known:
            self._start_over(known)
        self._line.resume(seen)
        self._got = self._line.seen

    def up(self, link: Link) -> None:
        """Begin to send."""
        self._wake.set()
        self._pumping = asyncio.get_running_loop().create_task(self._pump(link))
        if self._namespaces is not None:
            self._namespaces.tell("connect")

    def _start_over(self, known: str) -> None:
        """Begin anew with a runtime that does not know this client, or not any more."""
        if self.known:
            what = ConnectionLost("it has forgotten this client, which was away for too long")
            for reply in self._calls.values():
                if not reply.done():
                    reply.set_exception(what)
            if not self._line.empty:
                _log.warning("events were lost on their way to %s: %s", self._url.text, what)
            self._line = Line()
        self.known = known

    async def _pump(self, link: Link) -> None:
        """Send what there is, whenever there is something."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            busy = self._namespaces is not None and self._namespaces.busy
            if self._got != self._line.seen and not busy:
                self._got = self._line.seen
                await link.emit(OURS, "got", self._got)
            for item in self._line.unsent():
                await link.emit(item.namespace, item.event, item.number, *item.arguments)

    def down(self, reason: Exception) -> None:
        """Know that the connection has ended."""
        self._room.set()
        if self._pumping is not None:
            self._pumping.cancel()
        for answer in self._asks.values():
            if not answer.done():
                answer.set_exception(reason)
        self._unsettle()
        if isinstance(reason, MalformedError):
            # What was sent cannot be relied upon; whoever needs a connection may have another.
            self.fail(reason)
            text = printable(str(reason), 500)
            _log.error("the events of the runtime at %s have ended: %s", self._url.text, text)
        if self._namespaces is not None:
            self._namespaces.tell("disconnect", "transport error")
            if not isinstance(reason, MalformedError):
                self._uplink.hold()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something until this is closed."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def fail(self, reason: Exception) -> None:
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

    def take(self, namespace: str, event: str, arguments: list[Any]) -> None:
        """Take what comes. Raises MalformedError for what no runtime sends."""
        if namespace != OURS:
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
