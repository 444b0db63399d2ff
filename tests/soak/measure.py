"""What processes hold: before and after, and how much more that may be."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from local_runtime import descriptors

if TYPE_CHECKING:
    from collections.abc import Mapping

MORE: Mapping[str, tuple[float, int]] = {
    "KiB": (0.05, 6 << 10),
    "descriptors": (0, 4),
    "threads": (0, 8),
    "tasks": (0, 2),
    "objects": (0.02, 1500),
    "children": (0, 0),
    "large results": (0, 24),
}
"""How much more there may be at the end: by this share, and this much.

Memory: allocators keep some of what was free for a while. Descriptors and threads: connections and
threads are kept for the next call, as many as were needed at once. Large results: a server keeps
those for a while of which it does not know that they have arrived, since connections were cut."""


@dataclass(frozen=True)
class Held:
    """What one process holds."""

    pid: int
    counts: Mapping[str, int]

    def grown(self, since: Held) -> list[str]:
        """Say what is more than it may be."""
        found = []
        for what, (share, number) in MORE.items():
            before, now = since.counts.get(what), self.counts.get(what)
            if before is not None and now is not None and now > before * (1 + share) + number:
                found.append(f"{what}: {before:,} -> {now:,}")
        return found

    def __str__(self) -> str:
        return ", ".join(f"{self.counts[what]:,} {what}" for what in MORE if what in self.counts)


def held(pid: int, counts: Mapping[str, int]) -> Held:
    """Add what the kernel knows of a process to what it says itself."""
    status = Path(f"/proc/{pid}/status").read_text()
    lines = dict(line.split(":", 1) for line in status.splitlines())
    opened = descriptors(pid)
    kept = sum(one.startswith("/memfd:agentix") for one in opened)
    return Held(
        pid,
        {
            **{what: number for what, number in counts.items() if what in MORE},
            "KiB": int(lines["RssAnon"].split()[0]),
            "threads": int(lines["Threads"]),
            "descriptors": len(opened) - kept,
            "large results": kept,
            "children": len(children(pid)),
        },
    )


def children(pid: int) -> set[int]:
    """Return the processes that a process has started and that have not been collected."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        found.update(map(int, (task / "children").read_text().split()))
    return found


async def of_server(pid: int, report: Path) -> Held:
    """Ask a server that has the spy."""
    report.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    async with asyncio.timeout(20):
        while not report.exists():
            await asyncio.sleep(0.01)
    return held(pid, json.loads(report.read_text()))
