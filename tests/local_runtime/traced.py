"""Functions of the sandbox's side that trace, and look at the context they are called in."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from agentix import context, trace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

tenant = context.var("traced.tenant", default="nobody")


async def asteps() -> None:
    """Open spans in a task and in what it starts."""
    with trace.span("outer", prompt="p" * 200_000) as outer:
        outer.add_event("token", n=1)
        await asyncio.gather(_step("one"), _step("two"))


async def _step(name: str) -> None:
    with trace.span(name):
        await asyncio.sleep(0)


def steps() -> None:
    """Open spans in a thread, a pool and another thread."""
    with trace.span("outer"):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(_in_thread, "pooled").result()
        thread = threading.Thread(target=_in_thread, args=("threaded",))
        thread.start()
        thread.join()


def _in_thread(name: str) -> None:
    with trace.span(name):
        pass


def whole_trace() -> None:
    """Make a trace of one's own."""
    with trace.trace("inside", n=1), trace.span("step"):
        pass


def fail_in_span() -> None:
    """Raise inside a span."""
    with trace.span("failing"):
        raise ValueError("no")


def seen() -> tuple[str, Any, Any]:
    """See what came along."""
    return tenant.get(), context.get("experiment"), context.snapshot()


async def aseen() -> tuple[str, Any, Any]:
    """See what came along."""
    await asyncio.sleep(0)
    return seen()


def change() -> None:
    """Set what nobody else must see."""
    tenant.set("changed")
    context.set("experiment", "changed")


async def achange() -> None:
    """Set what nobody else must see."""
    change()


def each() -> Iterator[str]:
    """See at each step what came along."""
    for _ in range(3):
        yield tenant.get()


async def aeach() -> AsyncIterator[str]:
    """See at each step what came along."""
    for _ in range(3):
        await asyncio.sleep(0)
        yield tenant.get()
