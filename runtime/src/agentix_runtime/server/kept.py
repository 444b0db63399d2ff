"""Answers of calls that have ended, kept until it is known that they have arrived.

Three bounds push out the oldest. None is pushed out in its first seconds, nor while it is on its
way: its client is about to fetch it, or to find that the connection broke.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Ended(Protocol):
    """A call that has ended."""

    id: str
    size: int
    since: float
    """When it ended, or was last on its way."""
    sending: int
    """How often it is on its way now."""
    sent: bool
    """Whether it has been at all."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept: answers, bytes, seconds; and the seconds in which none is pushed out."""

    count: int = 1024
    bytes: int = 64 << 20
    age: float = 600.0
    fresh: float = 5.0


class Kept:
    """The answers, oldest first. ``dropped`` is told which are not kept any longer."""

    def __init__(self, bounds: Bounds, dropped: Callable[[str], None]) -> None:
        self._bounds = bounds
        self._dropped = dropped
        self._calls: OrderedDict[str, Ended] = OrderedDict()
        self._bytes = 0
        self.unfetched = 0
        """How many were pushed out that had never been on their way."""

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: Ended) -> None:
        """Keep a call's answer."""
        call.since = time.monotonic()
        self._calls[call.id] = call
        self._bytes += call.size
        if len(self._calls) > self._bounds.count or self._bytes > self._bounds.bytes:
            self.trim()

    def discard(self, call_id: str) -> None:
        """Keep it no longer: it has arrived, or nobody wants it."""
        if (call := self._calls.pop(call_id, None)) is not None:
            self._bytes -= call.size

    def trim(self) -> None:
        """Push out what is beyond the bounds."""
        bounds, now = self._bounds, time.monotonic()
        out = []
        count, size = len(self._calls), self._bytes
        for call in self._calls.values():
            age = now - call.since
            over = count > bounds.count or size > bounds.bytes or age > bounds.age
            if not over:
                break
            if call.sending:
                continue
            if age < bounds.fresh:
                break  # those behind it are younger still
            out.append(call)
            count -= 1
            size -= call.size
        for call in out:
            self.discard(call.id)
            self.unfetched += not call.sent
            self._dropped(call.id)
