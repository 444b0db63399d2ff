"""Requests of one client brought to their answers, whatever becomes of the connections.

A call is made over HTTP, with a short wait. If that does not bring its end, it is asked for over
Socket.IO, where many can wait on one connection; a large result is only announced there, and comes
over HTTP. Where a connection breaks, the client asks on another one. The runtime knows the call by
its id, so that however often this happens it runs once.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agentix.client.connection import ConnectionLost, NotConnected, Unsettled
from agentix.client.follow import Follower
from agentix.errors import RuntimeUnreachable
from agentix.wire import messages
from agentix.wire.errors import MalformedError
from agentix.wire.frames import body_prefix, pieces
from agentix.wire.messages import Await, Call, Cancel, Failure, Leave, Next, Noted, Pending, Records
from agentix.wire.protocol import MAX_WAIT

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from agentix.client.connection import Answer, Connection, Section
    from agentix.client.events import Events
    from agentix.wire.arguments import Pickled

T = TypeVar("T")

_LONG: Final = 25_000
"""Milliseconds for which a request on a connection of its own is held open at most."""

_MEANWHILE: Final = 2_000
"""Milliseconds for which it is, until there is a Socket.IO connection."""

_GIVE_UP: Final = 2.0
"""Seconds after a connection broke in which another one has to come about."""

_GIVE_UP_HTTP: Final = 0.8
"""The same for HTTP, where Socket.IO has been tried for so long."""

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.25
_FAREWELL: Final = 2.0


class Course:
    """One call on its way: what was sent of it and where, and how long it may be out of touch."""

    __slots__ = (
        "_asked",
        "_lost",
        "_pause",
        "_until",
        "arrived",
        "call",
        "far",
        "only_far",
        "pickled",
        "sent",
    )

    def __init__(self, call: Call, pickled: Pickled, *, far: bool) -> None:
        self.call = call
        self.pickled = pickled
        self.only_far = far
        """Whether it goes over Socket.IO from the beginning."""
        self.far = far
        """Whether it does so now."""
        self.sent = False
        """Whether any of it may have reached the runtime."""
        self.arrived = False
        """Whether the runtime has said that it knows the call."""
        self._asked = 0.0
        self._lost = 0.0
        self._until = 0.0
        self._pause = 0.0

    async def wait(self, lost: ConnectionLost) -> None:
        """Wait a while before the next attempt; raise *lost* again when there is to be none."""
        unsettled = isinstance(lost, Unsettled)
        if isinstance(lost, NotConnected) and not unsettled and not self.sent:
            raise lost
        self.sent = True
        now = asyncio.get_running_loop().time()
        if not self._until:
            # Soon, unless connections break all the time.
            self._pause = 0.0 if now - self._lost > _GIVE_UP else _FIRST_PAUSE
            self._until = now + (_GIVE_UP_HTTP if unsettled else _GIVE_UP)
        self._lost = now
        if now + self._pause > self._until:
            raise lost
        await asyncio.sleep(self._pause)
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)

    async def pace(self) -> None:
        """Wait a little if the answers come faster than things can change."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._asked < _FIRST_PAUSE:
            await asyncio.sleep(_FIRST_PAUSE)
        self._asked = loop.time()

    def in_touch(self) -> None:
        """Know that the runtime has answered, whatever it was."""
        self._until = 0.0


class Caller:
    """Makes the requests of one client, known to the runtime by its name."""

    def __init__(self, connection: Connection, events: Events, name: str) -> None:
        self._connection = connection
        self._events = events
        self._name = name
        self._follower: Follower | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._telling: set[asyncio.Task[Any]] = set()
        self.sandbox = ""
        """What the records of its journal are told to be from."""

    async def finish(self, course: Course) -> Section:
        """Make a call, and return the section that tells its end.

        Raises :class:`RuntimeUnreachable`, and MalformedError for an answer that is none. If it is
        cancelled, so is the call.
        """
        try:
            answer = await self.begin(course)
            while type(answer.sections[0].message) is Pending:
                answer = await self._wait(course)
        except (asyncio.CancelledError, MalformedError):
            self.give_up(course)
            raise
        await self.reached(answer.mark)
        return answer.sections[0]

    async def reached(self, mark: int) -> None:
        """Wait until the user has been given the journal's records up to this one, and events."""
        if mark and self._follower is not None:
            await self._follower.reached(mark)
        await self._events.settled()

    async def begin(self, course: Course) -> Answer:
        """Make a call, and return the first answer to it."""
        if self._follower is None and not self._connection.closed:
            self._follower = Follower(self._connection.ask, self._name, self.sandbox)
            self._follower.start()
        await self._events.ready(course.call.target)
        return await self.answer(course, course.call)

    async def _wait(self, course: Course) -> Answer:
        """Ask for the end of a call that goes on, or whose result is too large for Socket.IO."""
        await course.pace()
        wait = _MEANWHILE
        if course.far:
            course.far = False
        elif self._events.connected:
            course.far, wait = True, MAX_WAIT
        else:
            self._events.prepare()  # which takes a while the first time
        return await self.answer(course, Await(course.call.id, wait))

    async def items(self, course: Course, after: int) -> Answer:
        """Return the answer with the items of a stream after this number, or with its end."""
        course.far = course.only_far
        while True:
            wait = MAX_WAIT if course.far else _MEANWHILE if course.only_far else _LONG
            answer = await self.answer(course, Next(course.call.id, after, wait))
            if type(answer.sections[0].message) is not Pending:
                return answer
            await course.pace()
            course.far = course.only_far and not course.far

    async def answer(self, course: Course, request: Call | Await | Next) -> Answer:
        """Return the answer to a request of this call, asked for as often as it takes."""
        later: Await | Next | None = None
        while True:
            try:
                answer = await self._ask(course, request)
            except ConnectionLost as lost:
                if self._connection.closed:
                    raise self._connection.unreachable(lost, course.call.target) from lost
                try:
                    await course.wait(lost)
                except ConnectionLost:
                    raise self._connection.unreachable(lost, course.call.target) from lost
                if later is None:
                    wait = _MEANWHILE if course.far else request.wait
                    later = _asking(request, wait)
                if course.far:
                    course.far = False
                    self._events.prepare()
                # Answered at once, whatever becomes of the connection then. That it was accepted
                # means nothing: behind a tunnel, nobody may be there.
                request = _asking(request, 0)
                continue
            course.in_touch()
            message = answer.sections[0].message
            unknown = isinstance(message, Failure) and message.kind == "unknown"
            if unknown and type(request) is Await and not course.arrived:
                # It has not arrived, so it has not begun.
                course.far = course.only_far and self._events.connected
                if course.only_far and not course.far:
                    course.call = replace(course.call, wait=_MEANWHILE)
                request, later = course.call, None
                continue
            course.sent = course.arrived = True
            if later is not None and later.wait and type(message) is Pending:
                request, later = later, None
                continue
            return answer

    async def _ask(self, course: Course, request: Call | Await | Next) -> Answer:
        if self._connection.closed:
            raise ConnectionLost("the client was closed")
        call = course.call
        parts = pieces(course.pickled.stream, course.pickled.buffers) if request is call else ()
        if course.far:
            body = b"".join((body_prefix(messages.dump(request)), *parts))
            answer = self._connection.parse(request, await self._events.ask(body))
        else:
            answer = await self._connection.ask(request, parts, target=call.target)
        for section in answer.sections:
            message = section.message
            if isinstance(message, Records | Noted) or message.id != call.id:
                raise MalformedError("the answer is to another call")
        return answer

    def hold(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run this in the background, until it ends or the client is closed."""
        return _held(work, self._background)

    def give_up(self, course: Course) -> None:
        """Have a call be cancelled that may have been sent; nobody waits for that."""
        if not self._connection.closed:
            _held(self._tell(Cancel(course.call.id)), self._telling)

    async def _tell(self, request: Cancel | Leave) -> None:
        """Make a request of which nothing is expected, for a bounded time."""
        with contextlib.suppress(RuntimeUnreachable, MalformedError, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                while True:
                    try:
                        await self._connection.ask(request)
                    except ConnectionLost as lost:
                        if isinstance(lost, NotConnected) and type(request) is Leave:
                            return
                        await asyncio.sleep(_FIRST_PAUSE)
                    else:
                        return

    async def close(self) -> None:
        """Fail what is under way and say farewell, which ends all that is left of it."""
        if not self._connection.end():
            return
        async with contextlib.AsyncExitStack() as ends:  # all of them, also if this is cancelled
            ends.push_async_callback(self._connection.close)
            if self._follower is not None:
                ends.push_async_callback(self._tell, Leave(self._name))
            # Without connections they end themselves.
            ends.push_async_callback(_all_ended, self._background, _FAREWELL)
            ends.push_async_callback(self._events.close)
            if self._follower is not None:
                ends.push_async_callback(self._follower.close)
            # The farewell says what they have to say.
            await _all_ended(self._telling, 0)


def _asking(request: Call | Await | Next, wait: int) -> Await | Next:
    """Ask again for what a lost request has asked for, to be answered within this time."""
    if type(request) is Next:
        return Next(request.id, request.after, wait)
    return Await(request.id, wait)


def _held(work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[Any]]) -> asyncio.Task[T]:
    def let_go(task: asyncio.Task[T]) -> None:
        tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever wants to know has it by now

    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(let_go)
    return task


async def _all_ended(tasks: set[asyncio.Task[Any]], within: float) -> None:
    """Wait for tasks, and cancel those that take longer."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=within)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
