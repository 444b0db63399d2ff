"""Real server and worker processes; every test has to leave as much as it found."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from left_over import nothing_left
from local_runtime.by_hand import raw
from local_runtime.fixtures import fresh, shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local_runtime import LocalRuntime

__all__ = ["fresh", "shared"]


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compare this process's and the server's descriptors, and the worker's calls, with before."""
    runtimes: list[LocalRuntime] = [
        request.getfixturevalue(name)
        for name in ("shared", "fresh")
        if name in request.fixturenames
    ]
    in_server = [_in_server(runtime) for runtime in runtimes]
    with nothing_left(threads=False):
        yield
    for runtime, count in zip(runtimes, in_server, strict=True):
        if runtime.process.poll() is None:
            _becomes(lambda r=runtime: _in_server(r), count)  # type: ignore[misc]


def _in_server(runtime: LocalRuntime) -> tuple[int, int, int]:
    """Count the worker's calls, and the sockets and whatever else the server has open."""

    async def count() -> int:
        async with raw(runtime) as one:
            found: int = (await one.call("running")).value()
            return found

    running = asyncio.run(count())
    opened = runtime.descriptors()
    sockets = sum(one.startswith("socket:") for one in opened)
    return running, sockets, len(opened) - sockets


def _becomes(look: Callable[[], tuple[int, ...]], most: tuple[int, ...]) -> None:
    end = time.monotonic() + 10
    while any(now > then for now, then in zip(look(), most, strict=True)):
        assert time.monotonic() < end, f"calls, sockets, others: {look()} are left, not {most}"
        time.sleep(0.02)
