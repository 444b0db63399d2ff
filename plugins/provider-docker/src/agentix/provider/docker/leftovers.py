"""Removing what the sandboxes of processes that are gone have left, once their lease is over.

Only what had a lease: a container without one may be wanted for what is still in it. And only what
has a record here; the rest is for ``prune``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING

from agentix.errors import AgentixError
from agentix.provider.docker import container
from agentix.provider.docker.engine import Engine
from agentix.provider.docker.threads import finished
from agentix.provider.kit import LEASE_ENDED, RuntimeFolder, to_the_end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from agentix.provider.base import SandboxId
    from agentix.provider.docker.address import Address

AGAIN = 300.0
"""Seconds after which a process looks again."""

_log = logging.getLogger("agentix.provider.docker")
_looked: dict[Address, float] = {}


@contextlib.asynccontextmanager
async def removed_meanwhile(
    where: Address, delete: Callable[[SandboxId], Awaitable[None]]
) -> AsyncIterator[None]:
    """Delete leftovers during the body; those that are there after it are for the next time.

    A failure is logged and changes nothing.
    """
    now = time.monotonic()
    if now - _looked.get(where, -AGAIN) < AGAIN:
        yield
        return
    _looked[where] = now
    enough = threading.Event()
    task = asyncio.create_task(_remove(where, delete, enough))
    try:
        yield
    finally:
        enough.set()
        await to_the_end(asyncio.wait({task}))


async def _remove(
    where: Address, delete: Callable[[SandboxId], Awaitable[None]], enough: threading.Event
) -> None:
    try:
        for folder in await finished(_find, where, enough):
            if enough.is_set():
                break
            await delete(folder.sandbox_id)
            await finished(folder.remove)  # of one that was never whole
        else:
            return
        _looked.pop(where, None)
    except AgentixError as error:
        _log.warning("what ended processes left in %s stays there: %s", where.kind, error)


def _find(where: Address, enough: threading.Event) -> list[RuntimeFolder]:
    found = []
    with Engine(where) as engine:
        for folder in RuntimeFolder.all(where.kind):
            if enough.is_set():
                break
            if _is_left(folder, engine):
                found.append(folder)
    return found


def _is_left(folder: RuntimeFolder, engine: Engine) -> bool:
    record = folder.read_record()
    if record is None or (lives := record.owner.lives()):
        return False
    abandoned = lives is False
    if record.facts is None:
        return abandoned
    if record.facts.get("engine") != engine.where.url or record.facts.get("lease") is None:
        return False
    state = engine.state(container.name(folder.sandbox_id))
    if state is None or state.status == "created":
        return abandoned
    return not state.running and (abandoned or state.exit_code == LEASE_ENDED)
