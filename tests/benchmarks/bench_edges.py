"""The beginning and the end: what an import costs, and how soon a dead server is noticed."""

from __future__ import annotations

import asyncio
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from local_runtime import LocalRuntime, far
from row import Row

from agentix import RuntimeUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator


def rows() -> Iterator[Row]:
    """Measure and yield one row after the other."""
    bare, ours = [], []
    for _ in range(15):
        bare.append(_python("pass"))
        ours.append(_python("import agentix"))
    beyond = statistics.median(ours) - statistics.median(bare)
    yield Row("import agentix beyond bare Python", beyond * 1e3, "ms", 60)
    yield Row("server killed during a call, until the error", asyncio.run(_killed()), "s", 3)


def _python(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


async def _killed() -> float:
    slowest = 0.0
    for delay in (0.2, 1.5):  # while it is answered inline, and after that
        with LocalRuntime() as runtime:
            async with runtime.client() as client:
                await client.remote(far.anoop, 1)
                call = asyncio.ensure_future(client.remote(far.asleep, 60))
                await asyncio.sleep(delay)
                start = time.perf_counter()
                runtime.process.send_signal(signal.SIGKILL)
                try:
                    await call
                except RuntimeUnreachable:
                    slowest = max(slowest, time.perf_counter() - start)
    return slowest
