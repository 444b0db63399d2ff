"""The journal of a sandbox: what is logged, printed and traced in it, in one order, for the host.

Records are numbered from 1 and kept as the bytes that the host reads (``agentix.wire.records``)
until every client has taken them. What nobody takes is bounded: the oldest are dropped, and whoever
asks for them sees by the numbers how many are missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from typing import TYPE_CHECKING, Final

from agentix.wire import records
from agentix.wire.protocol import MAX_RECORD
from agentix.wire.records import Log
from agentix_runtime.parcel import Parcel

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix_runtime.parcel import Payload

LOGGER: Final = "agentix.sandbox"
"""The logger of what the runtime itself has to say."""

_MOST_RECORDS: Final = 100_000
_MOST_BYTES: Final = 16 << 20
_DROPPED_AT_ONCE: Final = 16
"""When it is full, this part of the journal goes: making room for one would be slow each time."""

_ANSWER_RECORDS: Final = 1024
_ANSWER_BYTES: Final = 256 << 10

_PACE: Final = 0.005
"""A client that follows a burst of records is answered this often, unless it waits for a result."""


class Journal:
    """The records that have come, and the clients that follow them. Used by one loop alone."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(16)
        self.last = 0
        """The number of the newest record; 0 before the first."""
        self.copies: list[Callable[[bytes], None]] = []
        """Each record is given to these, too; they must neither wait nor raise."""
        self.drains: list[Callable[[], None]] = []
        """These append what has been written by now and not been read yet."""
        self._drained = False
        self._for_all = 0
        self._of_calls: dict[str, int] = {}
        self._records: list[bytes] = []
        self._bytes = 0
        self._taken = 0
        self._clients: dict[str, int] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self._waking: asyncio.Handle | None = None
        self._woken_at = 0.0

    def take(self, payload: Payload | None, call: str = "") -> None:
        """Append the record in a frame of the worker's, after what it has printed before.

        If it comes from a *call* that runs, only the answers of that one wait for it.
        """
        if not self._drained:  # the frames of one turn have been there before it began
            self._drained = True
            asyncio.get_running_loop().call_soon(self._next_turn)
            for drain in self.drains:
                drain()
        if payload is None:
            self.note("a log record was lost: the server has too many open files to take it")
        elif not isinstance(payload, Parcel):
            self.append(bytes(payload), call)
        elif payload.size > MAX_RECORD:
            payload.close()
            self.note(
                f"a log record was lost: its {payload.size:,} bytes are more than it may have"
            )
        else:
            with contextlib.closing(payload):
                self.append(bytes(payload.opened()), call)

    def _next_turn(self) -> None:
        self._drained = False

    def settle(self, call: str) -> None:
        """Know that a call has an answer coming, with which goes what it has logged until now."""
        if (number := self._of_calls.pop(call, 0)) > self._for_all:
            self._for_all = number

    def append(self, record: bytes, call: str = "") -> None:
        """Append an encoded record; only in the loop's thread."""
        kept = records.prefixed(record)
        self._records.append(kept)
        self._bytes += len(kept)
        self.last += 1
        if call:
            self._of_calls[call] = self.last
        else:
            self._for_all = self.last
        if self._bytes > _MOST_BYTES or len(self._records) > _MOST_RECORDS:
            self._make_room()
        for copy in self.copies:
            copy(record)
        if self._waiting and self._waking is None:
            loop = asyncio.get_running_loop()
            wait = self._woken_at + _PACE - loop.time()
            self._waking = (
                loop.call_later(wait, self._wake) if wait > 0 else loop.call_soon(self._wake)
            )

    def note(self, text: str, level: int = logging.WARNING) -> None:
        """Append what the runtime itself has to say."""
        entry = Log(time.time_ns(), level, LOGGER, text, process=os.getpid(), process_name="server")
        self.append(records.dump(entry))

    def mark(self) -> int:
        """Give the number of the last record that goes before an answer, and hurry it along.

        What calls log that still run is not among them: one that logs without end would delay all.
        """
        for drain in self.drains:
            drain()
        if self._waking is not None:
            self._wake()
        return self._for_all

    async def follow(
        self, client: str, journal: str, after: int, wait: float
    ) -> tuple[int, int, bytes]:
        """Give the records after number *after*, waiting up to *wait* seconds for the first one.

        Returns the number of the first, how many there are, and their bytes back to back. Whoever
        asks for another journal than this one is told at once where to begin: behind what any
        client has taken, with a count of 0.
        """
        if journal != self.id:
            self._clients[client] = self._taken
            return self._taken + 1, 0, b""
        after = min(after, self.last)
        self._clients[client] = after
        self._taken = max(self._taken, after)
        self._forget_taken()
        if self.last == after and wait > 0:
            await self._more(wait)
        return self._after(after)

    def forget(self, client: str) -> None:
        """Keep nothing for a client any longer."""
        if self._clients.pop(client, None) is not None:
            self._forget_taken()

    def _after(self, after: int) -> tuple[int, int, bytes]:
        begin = max(0, after - self._dropped)
        found: list[bytes] = []
        size = 0
        for record in self._records[begin : begin + _ANSWER_RECORDS]:
            size += len(record)
            if found and size > _ANSWER_BYTES:
                break
            found.append(record)
        return self._dropped + begin + 1, len(found), b"".join(found)

    @property
    def _dropped(self) -> int:
        """The number of the last record that is not kept any more."""
        return self.last - len(self._records)

    async def _more(self, wait: float) -> None:
        """Wait for a record."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        timer = loop.call_later(wait, _set, waiter)
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiting.discard(waiter)

    def _wake(self) -> None:
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
        self._woken_at = asyncio.get_running_loop().time()
        for waiter in self._waiting:
            _set(waiter)
        self._waiting.clear()

    def _forget_taken(self) -> None:
        """Let go of what all clients have taken; without a client, all is kept for the next."""
        if self._clients:
            self._let_go(min(self._clients.values()) - self._dropped)

    def _make_room(self) -> None:
        """Drop the oldest records: a part of all, and more while they are too large."""
        count = max(1, len(self._records) // _DROPPED_AT_ONCE)
        left = self._bytes - sum(map(len, self._records[:count]))
        while left > _MOST_BYTES and count < len(self._records) - 1:
            left -= len(self._records[count])
            count += 1
        self._let_go(count)  # at once: each time, all that follow move up

    def _let_go(self, count: int) -> None:
        if count > 0:
            self._bytes -= sum(map(len, self._records[:count]))
            del self._records[:count]


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
