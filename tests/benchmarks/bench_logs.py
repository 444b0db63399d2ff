"""Twenty thousand log lines in one call: how soon they are here, and whom they hold up."""

from __future__ import annotations

import asyncio
import logging
import statistics
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from local_runtime import LocalRuntime, far, noisy
from local_runtime.proxy import Proxy
from row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINES = 20_000


class Taking(logging.Handler):
    """Counts what each record says."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == noisy.__name__:
            self.taken[record.getMessage()] += 1


@contextmanager
def taking() -> Iterator[Taking]:
    """Take all records of this process."""
    handler, root = Taking(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def rows() -> Iterator[Row]:
    """Measure and yield one row after the other."""
    rounds = [asyncio.run(_burst()) for _ in range(5)]
    took, slowest = (statistics.median(values) for values in zip(*rounds, strict=True))
    yield Row("20,000 lines in a call, until its result is here with all of them", took, "s", 0.8)
    yield Row("a no-op meanwhile, slowest", slowest * 1e3, "ms", 50)
    lost, twice = asyncio.run(_cut())
    yield Row("lines lost, connection cut 5 times", lost, "", 0)
    yield Row("lines that came twice", twice, "", 0)


async def _burst() -> tuple[float, float]:
    with taking() as handler, LocalRuntime() as runtime:
        async with runtime.client() as client:
            await client.remote(noisy.burst, 1)
            handler.taken.clear()
            start = time.perf_counter()
            call = asyncio.ensure_future(client.remote(noisy.burst, _LINES))
            slowest = 0.0
            while not call.done():
                begun = time.perf_counter()
                await client.remote(far.anoop, 1)
                slowest = max(slowest, time.perf_counter() - begun)
                await asyncio.sleep(0.01)
            await call
            took = time.perf_counter() - start
            assert sum(handler.taken.values()) == _LINES, "a result overtook lines"
    return took, slowest


async def _cut() -> tuple[int, int]:
    with taking() as handler, LocalRuntime() as runtime:
        async with Proxy(runtime) as proxy, proxy.client() as client:
            await client.remote(noisy.burst, 1)
            handler.taken.clear()
            call = asyncio.ensure_future(client.remote(noisy.burst, _LINES))
            for _ in range(5):
                await asyncio.sleep(0.05)
                proxy.cut()
            await call
    return _LINES - len(handler.taken), sum(handler.taken.values()) - len(handler.taken)
