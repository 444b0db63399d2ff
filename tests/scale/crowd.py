"""A crowd of sandboxes: all there at the same time, all answering, none too heavy, none left."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.testing import probes
from agentix.testing.census import MARK

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix.provider.base import Sandbox, SandboxProvider
    from agentix.testing.census import Place
    from agentix.testing.subject import Subject

_CALLS = 5


@dataclass(frozen=True, slots=True)
class Crowd:
    """What was seen of one: seconds, and MiB for each sandbox as its share (PSS) and in all (RSS).

    The share counts what sandboxes have in common, such as the interpreter's code, once. Whatever
    an engine keeps beside each container is not in it.
    """

    size: int
    until_all_answered: float
    until_all_gone: float
    share: float
    resident: float

    def __str__(self) -> str:
        """Say it on one line."""
        return (
            f"{self.size} sandboxes: all answered after {self.until_all_answered:.1f} s, all gone "
            f"{self.until_all_gone:.1f} s after that; {self.share:.0f} MiB each as PSS, "
            f"{self.resident:.0f} MiB as RSS"
        )


async def crowd(subject: Subject, place: Place, size: int, look: Callable[[], None]) -> Crowd:
    """Have *size* sandboxes at once, call each of them some times, and delete them all.

    *look* is called while they are all there.
    """
    provider = subject.provider()
    begun = time.monotonic()
    here: list[Sandbox] = []
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(size):
                group.create_task(_arrive(provider, subject, place, number, here))
        assert len({sandbox.runtime_url for sandbox in here}) == size
        for _ in range(_CALLS):
            await asyncio.gather(*(sandbox.remote(probes.echo, 1) for sandbox in here))
        answered = time.monotonic()
        pids = await asyncio.to_thread(place.processes)
        await asyncio.to_thread(look)
        share, resident = _memory(pids, "Pss"), _memory(pids, "Rss")
        leaving = time.monotonic()
    finally:
        await asyncio.gather(*(_leave(provider, sandbox) for sandbox in here))
    gone = time.monotonic()
    return Crowd(size, answered - begun, gone - leaving, share / size, resident / size)


async def _arrive(
    provider: SandboxProvider, subject: Subject, place: Place, number: int, here: list[Sandbox]
) -> None:
    config = subject.config(env={MARK: place.mark, "NUMBER": str(number)})
    sandbox = await provider.create(config)
    here.append(sandbox)
    assert (await sandbox.remote(probes.environment))["NUMBER"] == str(number)


async def _leave(provider: SandboxProvider, sandbox: Sandbox) -> None:
    await sandbox.aclose()
    await provider.delete(sandbox.sandbox_id)


def _memory(pids: dict[int, str], field: str) -> float:
    """Return how many MiB these processes have."""
    kilobytes = 0
    for pid in pids:
        with suppress(OSError):  # it has just ended
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(f"{field}:"):
                    kilobytes += int(line.split()[1])
    return kilobytes / 1024
