"""An attempt to reach somebody: it takes as long as it may, or until it is broken off.

Only time in which the loop runs is counted. An answer that has come while a program was busy with
other things for a minute has come in time.
"""

from __future__ import annotations

import asyncio
from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

CONNECT: Final = 5.0
"""Seconds in which a host that can be reached has taken a connection, with two packets lost."""

_TICK: Final = 0.25


class Attempt:
    """Bounds a block of code; TimeoutError when it has taken too long or was broken off."""

    def __init__(self, seconds: float) -> None:
        self.allow(seconds)
        self._bound = asyncio.timeout(None)
        self.broken_off = False
        """Whether it was ended before its time."""

    def allow(self, seconds: float) -> None:
        """Have it take so long from now on."""
        self._ticks = ceil(seconds / _TICK)

    def break_off(self) -> None:
        """End it now."""
        self.broken_off = True
        self._end()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._bound.__aenter__()
        self._timer = self._loop.call_later(_TICK, self._tick)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        await self._bound.__aexit__(kind, error, trace)

    def _tick(self) -> None:
        self._ticks -= 1
        if self._ticks > 0:
            self._timer = self._loop.call_later(_TICK, self._tick)
        else:
            self._end()

    def _end(self) -> None:
        if not self._bound.expired():
            self._bound.reschedule(self._loop.time())
