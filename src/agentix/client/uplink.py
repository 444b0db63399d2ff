"""A client's one Socket.IO connection: made when somebody needs it, and again when it breaks."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from agentix.client.held_socket import HeldSocket
from agentix.client.http import ConnectionLost, NotConnected, Unsettled
from agentix.errors import RuntimeUnreachable
from agentix.wire.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    import aiohttp

    from agentix.client.connection import Connection
    from agentix.client.link import Link
    from agentix.client.url import RuntimeURL

OURS: Final = "/rpc"
"""The namespace of what is not an event of somebody's."""

_AGAIN: Final = (0.0, 0.05, 0.1, 0.2, *[0.25] * 6)
"""Pauses before the attempts to connect again, two seconds in all."""

_GIVE_UP: Final = 2.0
_GIVE_UP_NEW: Final = 1.0
"""Seconds after which no other attempt is begun, where each takes long; the first time, sooner."""

_HOLD: Final = 30.0
"""Seconds for which the runtime keeps a client's events, and attempts go on for their sake."""

_HELLO: Final = 10.0


class User(Protocol):
    """Whoever uses a connection, and hears of it."""

    known: str
    """What the runtime calls this client; empty until they have met."""

    @property
    def names(self) -> list[str]:
        """The namespaces to connect."""

    def greeting(self) -> tuple[Any, ...]:
        """Give what the first word says."""

    def meet(self, arguments: list[Any]) -> None:
        """Take the answer to it. Raises MalformedError for what is none."""

    def up(self, link: Link) -> None:
        """Know that there is a connection."""

    def take(self, namespace: str, event: str, arguments: list[Any]) -> None:
        """Take what comes on it. Raises MalformedError for what no runtime sends."""

    def down(self, reason: Exception) -> None:
        """Know that it has ended."""

    def fail(self, reason: Exception) -> None:
        """Know that there will be none for what waits for one now."""


class Uplink:
    """Holds the connection; of one loop. ``connection`` tells in words why it is refused."""

    def __init__(
        self, url: RuntimeURL, token: str | None, connection: Connection, user: User
    ) -> None:
        self._url = url
        self._token = token
        self._connection = connection
        self._user = user
        self._socket: HeldSocket | None = None
        self.link: Link | None = None
        """The connection, if there is one now."""
        self._opening: asyncio.Task[Link] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # A connection on which the first word is still to come.
        self._meeting: tuple[Link, asyncio.Future[None]] | None = None
        self._closed = False

    def prepare(self) -> None:
        """Begin to connect; what comes of it shows in time."""
        if self.link is None and self._opening is None and not self._closed:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(self._opened)

    async def reached(self, target: str) -> None:
        """See that there is a connection, or raise RuntimeUnreachable."""
        try:
            await self.linked()
        except ConnectionLost as exc:
            raise self._connection.unreachable(exc, target) from exc
        except MalformedError as exc:
            raise self._connection.error(target, "MalformedAnswer", str(exc)) from exc
        except RuntimeUnreachable as exc:
            raise RuntimeUnreachable(exc.error, target=target) from exc.__cause__

    async def linked(self) -> Link:
        """Give the connection, making one if there is none."""
        if self._closed:
            raise RuntimeError(f"the client of {self._url.text} is closed")
        if self.link is not None:
            return self.link
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
        end = loop.time() + (_GIVE_UP if self._user.known else _GIVE_UP_NEW)
        for pause in _AGAIN:
            await asyncio.sleep(pause)
            try:
                return await self._connect()
            except (ConnectionLost, MalformedError) as exc:
                if isinstance(exc, MalformedError) or getattr(exc, "status", None) is not None:
                    await self._refused(exc)
                lost = exc if isinstance(exc, NotConnected) else Unsettled(str(exc))
                if not (self._user.known or isinstance(lost, Unsettled)) or loop.time() >= end:
                    break
        self._user.fail(lost)
        raise lost

    async def _refused(self, exc: Exception) -> NoReturn:
        """Raise why it is of no use to try again."""
        self._user.fail(exc)
        if not isinstance(exc, MalformedError):
            await self._connection.health()  # which says it in words
        raise exc

    async def _connect(self) -> Link:
        module = await asyncio.to_thread(importlib.import_module, "agentix.client.link")
        try:
            connector = self._connector()
        except OSError as exc:
            raise NotConnected(exc.strerror or str(exc)) from exc
        names = self._user.names
        link: Link = module.Link(connector, self._token, self._receive, self._lost)
        await link.open(self._url.base, [OURS, *names])
        met: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._meeting = link, met
        try:
            await link.emit(OURS, "hello", *self._user.greeting())
            async with asyncio.timeout(_HELLO):
                await met
        except BaseException as exc:
            if self.link is link:
                self.link = None
            await link.close()
            if isinstance(exc, TimeoutError):
                raise NotConnected("it does not answer") from None
            raise
        finally:
            self._meeting = None
        if self.link is not link:
            raise ConnectionLost("it closed the connection")
        self._user.up(link)
        return link

    def _connector(self) -> aiohttp.BaseConnector:
        import aiohttp

        if self._url.socket is None:
            return aiohttp.TCPConnector()
        if self._socket is None:
            self._socket = HeldSocket(self._url.socket)
        return aiohttp.UnixConnector(self._socket.path)

    def hold(self) -> None:
        """Connect again, soon, for the sake of the events that wait in the sandbox."""
        self._start(self._hold())

    async def _hold(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + _HOLD
        while not self._closed and loop.time() < end:
            try:
                await self.linked()
                return
            except (MalformedError, RuntimeUnreachable):
                return
            except ConnectionLost:
                await asyncio.sleep(1.0)

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> list[asyncio.Task[Any]]:
        """Begin nothing more, and give the tasks that are at work."""
        self._closed = True
        return [*self._tasks, *([] if self._opening is None else [self._opening])]

    async def close(self) -> None:
        """Say farewell and close everything."""
        link, self.link = self.link, None
        try:
            if link is not None:
                await link.emit(OURS, "bye")
                await link.close()
        finally:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _receive(self, link: Link, namespace: str, event: str, arguments: list[Any]) -> None:
        if self.link is link:
            self._user.take(namespace, event, arguments)
        elif self._meeting is not None and self._meeting[0] is link:
            if (namespace, event) != (OURS, "hello"):
                raise MalformedError("an event came before its time")
            self._user.meet(arguments)
            self.link = link
            if not (met := self._meeting[1]).done():
                met.set_result(None)

    def _lost(self, link: Link, reason: Exception) -> None:
        """Know that the connection has ended."""
        if self._meeting is not None and self._meeting[0] is link:
            met = self._meeting[1]
            if not met.done():
                met.set_exception(reason)
        if self.link is link:
            self.link = None
            self._start(link.close())
            self._user.down(reason)
