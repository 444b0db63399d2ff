"""A container that is starting, and how it ended if it did."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from agentix.provider.docker.threads import finished
from agentix.provider.kit import account

if TYPE_CHECKING:
    from agentix.provider.docker.engine import Engine

_LOOK_EVERY = 0.2
_READ_EVERY = 5  # looks; what a container prints is read less often than whether it lives


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
        for looks in itertools.count(1):
            await asyncio.sleep(_LOOK_EVERY)
            state = await finished(self._engine.state, self._name)
            if state is None:
                break
            if not state.running or looks % _READ_EVERY == 0:
                self._output = await finished(self._engine.output, self._name)
            if not state.running:
                return state.end
        return "its container was removed"
