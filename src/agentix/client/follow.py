"""Follow a sandbox's journal: what it holds goes to this process's loggers and trace processors.

One request is always open; it is answered once there are records, and made again with the number of
the last one that has come. So a lost connection loses nothing and repeats nothing. All clients of a
process that follow the same journal put what they receive into one queue: whoever has a record
first brings it, and each is delivered once, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from agentix.client.answers import Answer
from agentix.client.http import ConnectionLost
from agentix.errors import RuntimeUnreachable
from agentix.utils.log.replay import LogReplay
from agentix.wire import records
from agentix.wire.errors import MalformedError
from agentix.wire.frames import PREFIX
from agentix.wire.messages import Follow, Records
from agentix.wire.records import Log, Output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.utils.trace.replay import TraceReplay
    from agentix.wire.frames import Buffer
    from agentix.wire.records import Entry

Ask: TypeAlias = Callable[[Follow], Awaitable[Answer]]

_WAIT: Final = 25_000
"""Milliseconds for which a request is open."""

_SLICE: Final = 0.002
"""Seconds after which others on the loop have their turn; a single record may take longer."""

_BOUND: Final = 10.0
"""How long a result waits for the records before it."""

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_FAREWELL: Final = 1.0
_MOST_TOLD: Final = 10
_MOST_JOURNALS: Final = 4096


class _Journal:
    """One journal, as this process has received and delivered it, whichever client brought it."""

    def __init__(self, sandbox: str) -> None:
        self.followers = 0
        self.received = 0
        self.delivered = 0
        self._queue: deque[Iterator[tuple[int, Entry | MalformedError | str]]] = deque()
        self._unreadable = 0
        self._lock = threading.Lock()
        # Never waited for: a handler may wait for the thread that would wait here.
        self._delivering = threading.Lock()
        self._log = LogReplay(sandbox)
        self._trace: TraceReplay | None = None

    def put(self, after: int, first: int, count: int, data: Buffer) -> None:
        """Take what a client has received that had asked for the records after number *after*."""
        last = first + count - 1
        with self._lock:
            if last <= self.received:
                return
            missing = first - 1 - max(after, self.received)
            if missing > 0:
                self._queue.append(iter([(first - 1, _missing(missing))]))
            self._queue.append(enumerate(records.load_all(data, count), first))
            self.received = last

    def begin(self, after: int) -> None:
        """Skip what others have taken."""
        with self._lock:
            if self.received < after:
                self._queue.append(iter([(after, "")]))
                self.received = after

    def deliver(self) -> bool:
        """Deliver for a slice of time; tell whether it was this caller's turn."""
        if not self._delivering.acquire(blocking=False):
            return False
        try:
            end = time.perf_counter() + _SLICE
            while self._queue:
                for number, entry in self._queue[0]:
                    if number > self.delivered:
                        # First, in case it raises what may pass: nothing is delivered twice.
                        self.delivered = number
                        self._give(entry)
                    if time.perf_counter() >= end:
                        return True
                self._queue.popleft()
            with self._lock:
                if not self._queue:
                    self.delivered = self.received  # also where the last ones could not be read
        finally:
            self._delivering.release()
        return True

    def _give(self, entry: Entry | MalformedError | str) -> None:
        if isinstance(entry, Log | Output):
            self._log.deliver(entry)
        elif isinstance(entry, MalformedError):
            self._unreadable += 1
            if self._unreadable <= _MOST_TOLD:
                last = "; more like it are not told" if self._unreadable == _MOST_TOLD else ""
                self._log.notice(f"a record of the sandbox cannot be read: {entry}{last}")
        elif isinstance(entry, str):
            if entry:
                self._log.notice(entry)
        else:
            if self._trace is None:
                from agentix.utils.trace.replay import TraceReplay  # only where there are traces

                self._trace = TraceReplay()
            self._trace.deliver(entry)


_journals: OrderedDict[str, _Journal] = OrderedDict()
_registry = threading.Lock()


def _join(journal: str, sandbox: str) -> _Journal:
    with _registry:
        found = _journals.setdefault(journal, _Journal(sandbox))
        found.followers += 1
        _journals.move_to_end(journal)
        if len(_journals) > _MOST_JOURNALS:
            unused = (key for key, one in _journals.items() if not one.followers)
            _journals.pop(next(unused, ""), None)
    return found


def _begin_anew() -> None:
    """Know nothing in a forked child: what is under way there is its parent's."""
    global _registry
    _registry = threading.Lock()
    _journals.clear()


os.register_at_fork(after_in_child=_begin_anew)


class Follower:
    """Follows one runtime's journal, for one client, until it is closed.

    ``ask`` makes a request; *sandbox* is what records have as their ``sandbox_id``.
    """

    def __init__(self, ask: Ask, client: str, sandbox: str = "") -> None:
        self._ask = ask
        self._client = client
        self._sandbox = sandbox
        self._id = ""
        self._journal: _Journal | None = None
        self._received = 0
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow, in the running loop; once is enough."""
        if self._task is None:
            # A context of its own: the caller's variables have nothing to do with the records.
            self._task = asyncio.get_running_loop().create_task(
                self._follow(), name="agentix-follow", context=contextvars.Context()
            )

    async def reached(self, mark: int) -> None:
        """Wait until the records up to number *mark* have been delivered, for a bounded time."""
        if mark == 0 or self._is_past(mark) or self._task is None or self._task.done():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = mark
        self._hurry.set()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BOUND):
                    await waiter
        finally:
            self._waiting.pop(waiter, None)

    async def close(self) -> None:
        """Stop; deliver what is there by now, if that takes little time."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        try:
            await asyncio.wait([task])
            with contextlib.suppress(
                ConnectionLost, RuntimeUnreachable, MalformedError, TimeoutError
            ):
                async with asyncio.timeout(_FAREWELL):
                    await self._deliver()
                    while self._journal is not None and await self._next(0):
                        await self._deliver()
        finally:
            self._leave()
            self._tell(everybody=True)

    def _is_past(self, mark: int) -> bool:
        return self._journal is not None and mark <= self._journal.delivered

    async def _follow(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                if await self._next(_WAIT):
                    await self._deliver_and_follow()
                pause = _FIRST_PAUSE
            except (ConnectionLost, RuntimeUnreachable, MalformedError):
                self._hurry.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._hurry.wait()
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _deliver_and_follow(self) -> None:
        """Deliver records while the next ones travel, as long as there are any."""
        more = True
        while more:
            asking = asyncio.ensure_future(self._next(_WAIT))
            try:
                await self._deliver()
                more = await asking
            finally:
                asking.cancel()
                await asyncio.wait([asking])
                if not asking.cancelled():
                    asking.exception()

    async def _deliver(self) -> None:
        """Deliver what has been received, or see others of this process do it."""
        journal = self._journal
        while journal is not None and journal.delivered < self._received:
            own = journal.deliver()
            self._tell()
            await asyncio.sleep(0 if own else 0.001)
        self._tell()

    async def _next(self, wait: int) -> bool:
        """Ask for the next records; tell whether there were any."""
        began = time.monotonic()
        after = self._received
        answer = await self._ask(Follow(self._client, self._id, after, wait))
        [section] = answer.sections
        found = section.message
        if not isinstance(found, Records):
            raise MalformedError("the answer holds no records")
        first_time = not self._id
        if found.journal != self._id:
            self._begin(found.journal, found.first - 1)
        elif found.count and self._journal is not None:
            if found.first <= after:
                raise MalformedError("the records have come before")
            if found.count * PREFIX.size > len(section.segments[0]):
                raise MalformedError("the records are not all there")
            self._journal.put(after, found.first, found.count, section.segments[0])
            self._received = found.first + found.count - 1
            return True
        if wait and not first_time and time.monotonic() - began < _FIRST_PAUSE:
            await asyncio.sleep(_FIRST_PAUSE)  # a runtime that says nothing is no reason to spin
        return False

    def _begin(self, journal: str, after: int) -> None:
        """Follow a journal from behind number *after*."""
        self._leave()
        self._id = journal
        self._received = after
        self._journal = _join(journal, self._sandbox)
        self._journal.begin(after)
        self._journal.deliver()
        self._tell()

    def _tell(self, *, everybody: bool = False) -> None:
        for waiter, mark in self._waiting.items():
            if (everybody or self._is_past(mark)) and not waiter.done():
                waiter.set_result(None)

    def _leave(self) -> None:
        if self._journal is not None:
            with _registry:
                self._journal.followers -= 1
            self._journal = None


def _missing(count: int) -> str:
    were = "1 record of the sandbox is" if count == 1 else f"{count:,} records of the sandbox are"
    return f"{were} missing here: there were more than it keeps for a host that does not take them"
