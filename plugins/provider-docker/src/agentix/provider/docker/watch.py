"""A container that is starting, and how it ended if it did."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from agentix.provider.docker.threads import finished
from agentix.provider.kit import account

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from agentix.provider.docker.engine import Engine

# Seconds from one look to the next. Looking costs the engine, and when many containers start at
# once they need it themselves: the longer one takes, the rarer it is looked at.
_FIRST_LOOK = 0.2
_LONGER = 1.25
_RAREST_LOOK = 1.0
_READ_EVERY = 1.0  # what a container prints is read less often than whether it lives


class Watch:
    """Looks after a container that is starting: how it ended, and what it printed."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._output = b""

    def account(self) -> str:
        """Return a clause about the output, as of the last look."""
        return account(self._output.decode(errors="replace"))

    async def death(self) -> str:
        """Return how the container ended, once it has."""
        pause, unread = _FIRST_LOOK, 0.0
        while True:
            await asyncio.sleep(pause)
            unread += pause
            pause = min(pause * _LONGER, _RAREST_LOOK)
            state = await finished(self._engine.state, self._name)
            if state is None:
                return "its container was removed"
            if not state.running or unread >= _READ_EVERY:
                self._output = await finished(self._engine.output, self._name)
                unread = 0.0
            if not state.running:
                return state.end

    async def outlives(self, work: Coroutine[Any, Any, None]) -> bool:
        """Carry *work* out, or return False as soon as the container has ended instead."""
        working, dying = asyncio.create_task(work), asyncio.create_task(self.death())
        try:
            await asyncio.wait({working, dying}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                dying.result()
                return False
            working.result()
            return True
        finally:
            for task in (working, dying):
                task.cancel()
            await asyncio.gather(working, dying, return_exceptions=True)
