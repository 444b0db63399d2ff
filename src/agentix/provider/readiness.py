"""Waiting until the runtime in a new sandbox answers, or is known never to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentix.errors import ProviderError, RuntimeUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from agentix.client import Health
    from agentix.provider.runtime_folder import RuntimeFolder

_SHORTEST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05


async def until_ready(
    folder: RuntimeFolder,
    *,
    death: Callable[[], Coroutine[Any, Any, str]],
    account: Callable[[], str],
    within: float,
) -> Health:
    """Return the first health report of the sandbox reached through *folder*.

    *death* returns when the sandbox ends, saying how; *account* says on one line what it had to
    say, such as the end of its output. Raises ProviderError when it ends first, or when *within*
    seconds were not enough.
    """
    answer = asyncio.create_task(_answer(folder))
    ended = asyncio.create_task(death())
    try:
        await asyncio.wait({answer, ended}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if ended.done():
            problem = f"ended before it was ready ({ended.result()})"
        else:
            problem = f"did not become ready within {within:g} s"
    finally:
        answer.cancel()
        ended.cancel()
        await asyncio.gather(answer, ended, return_exceptions=True)
    raise ProviderError(f"sandbox {folder.sandbox_id} {problem}; {account()}")


async def _answer(folder: RuntimeFolder) -> Health:
    from agentix.client import RuntimeClient  # only now: it loads an HTTP library

    pause = _SHORTEST_PAUSE
    while True:
        if folder.socket.exists():
            try:
                async with RuntimeClient(folder.url, timeout=5, token=folder.token) as client:
                    return await client.health()
            except RuntimeUnreachable as error:
                if error.error.type != RuntimeUnreachable.__name__:  # it answers, and always will
                    reason = error.error.message
                    raise ProviderError(f"sandbox {folder.sandbox_id}: {reason}") from error
        await asyncio.sleep(pause)
        pause = min(pause * 1.2, _LONGEST_PAUSE)
