"""Large values: what they cost in memory, and what they cost everybody else."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from local_runtime import LocalRuntime, far
from row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.client import RuntimeClient

_LARGE = 64 << 20
_HUGE = 1 << 30

_CLIENT = """
import asyncio, resource, sys
sys.path.insert(0, sys.argv[1])
from agentix import RuntimeClient
from local_runtime import far

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

async def main():
    async with RuntimeClient(sys.argv[2], token=sys.stdin.readline().strip()) as client:
        await client.remote(far.ablob, 1)
        before = peak()
        result = await client.remote(far.blob, int(sys.argv[3]))
        assert len(result) == int(sys.argv[3])
        print(peak() - before)

asyncio.run(main())
"""


def rows() -> Iterator[Row]:
    """Measure and yield one row after the other."""
    with LocalRuntime() as runtime:
        host, server = _memory(runtime)
        yield Row("1 GiB result, host's peak", host / 2**20, "MiB", 1.1, _HUGE / 2**20,
                  "the result", relative=True)  # fmt: skip
        yield Row("1 GiB result, server's growth", server / 2**20, "MiB", 16)
        idle, busy = asyncio.run(_meanwhile(runtime))
        yield Row("no-op while 64 MiB results pass, p50", statistics.median(busy) * 1e3, "ms", 2,
                  statistics.median(idle) * 1e3, "idle", relative=True)  # fmt: skip
        yield Row("the same, slowest", max(busy) * 1e3, "ms", 60)


def _memory(runtime: LocalRuntime) -> tuple[int, int]:
    """Have a process of its own take a huge result; its growth, and the server's."""

    def take(size: int) -> int:
        command = [sys.executable, "-c", _CLIENT, str(Path(__file__).parent.parent), runtime.url]
        done = subprocess.run(
            [*command, str(size)],
            input=runtime.token,
            text=True,
            stdout=subprocess.PIPE,
            check=True,
        )
        return int(done.stdout)

    take(_LARGE)  # what any client costs
    before = _own(runtime.process.pid)
    return take(_HUGE), _own(runtime.process.pid) - before


def _own(pid: int) -> int:
    """Give the most memory of its own that a process has had (shared memory is the result's)."""
    status = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields["RssAnon"].split()[0]) << 10


async def _noops(client: RuntimeClient, until: asyncio.Future[object] | None) -> list[float]:
    took: list[float] = []
    while len(took) < 300 if until is None else not until.done():
        start = time.perf_counter()
        await client.remote(far.anoop, 1)
        took.append(time.perf_counter() - start)
    return took


async def _meanwhile(runtime: LocalRuntime) -> tuple[list[float], list[float]]:
    """Measure no-ops: alone, and while large results come one after the other."""
    async with runtime.client() as client:

        async def results() -> None:
            for _ in range(12):
                await client.remote(far.blob, _LARGE)

        await client.remote(far.blob, _LARGE)
        idle = await _noops(client, None)
        return idle, await _noops(client, asyncio.ensure_future(results()))
