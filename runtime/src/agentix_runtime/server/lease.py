"""The lease: how long this sandbox goes on when no host holds it.

A hold is a connection: it lasts until that ends, so that a host which is killed lets go at once,
and one that is only busy does not. Nothing is said on it after the answer's head.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MOST: Final = 256
"""Hosts that may hold a sandbox at the same time; each of them costs a descriptor."""

HELD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
"""The beginning of an answer that has no end."""

_STEPS: Final = 16


class Lease:
    """Counts the time in which nobody holds the sandbox, from now on; None: it does not matter."""

    def __init__(self, seconds: float | None, over: Callable[[], None]) -> None:
        self._seconds = seconds
        self._over = over
        self._holds: set[_Hold] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._count(_STEPS)

    def take(self, transport: asyncio.Transport) -> bool:
        """Make a hold of this connection; tell whether there was room for it."""
        if len(self._holds) >= MOST:
            return False
        hold = _Hold(self, transport)
        transport.set_protocol(hold)
        transport.write(HELD)
        self._holds.add(hold)
        self._stop()
        return True

    def let_go(self, hold: _Hold) -> None:
        """Count from the beginning if that was the last one."""
        self._holds.discard(hold)
        if not self._holds:
            self._count(_STEPS)

    def close(self) -> None:
        """End all holds, and count no more."""
        self._seconds = None
        self._stop()
        for hold in list(self._holds):
            hold.transport.abort()

    def _count(self, steps: int) -> None:
        # In steps: while this process is stopped no host can take hold of it, and of all that time
        # one step counts.
        self._stop()
        if self._seconds is None:
            return
        if steps:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds / _STEPS, self._count, steps - 1)
        else:
            self._over()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Hold(asyncio.Protocol):
    """One connection that holds the sandbox."""

    def __init__(self, lease: Lease, transport: asyncio.Transport) -> None:
        self._lease = lease
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """End the connection: whoever holds has nothing to say."""
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go."""
        self._lease.let_go(self)
