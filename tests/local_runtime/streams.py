"""Generators, and what looks like one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from typing import TYPE_CHECKING, Any

from agentix import context
from local_runtime.failing import FAILURES
from local_runtime.hard import carried, notes, spin, variable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

_log = logging.getLogger("local_runtime.streams")


def raises_after(how: str, count: int) -> Iterator[int]:
    """Yield numbers, then raise."""
    yield from range(count)
    raise FAILURES[how]()


async def araises_after(how: str, count: int) -> AsyncIterator[int]:
    """Yield numbers, then raise, on the loop."""
    for number in range(count):
        yield number
    raise FAILURES[how]()


def tells_where(name: str) -> Iterator[tuple[int, str]]:
    """Yield in which thread it runs, and what it has set there; note the same when it is closed."""
    variable.set(name)
    try:
        while True:
            yield threading.get_ident(), variable.get()
    finally:
        notes.append((name, threading.get_ident(), variable.get()))


async def atells_where(name: str) -> AsyncIterator[str]:
    """Yield which task it runs in; note the same when it is closed."""
    variable.set(name)
    try:
        while True:
            yield _task()
    finally:
        await asyncio.sleep(0)
        notes.append((name, _task(), variable.get()))


def _task() -> str:
    task = asyncio.current_task()
    return "" if task is None else task.get_name()


def counts(name: str, size: int = 0) -> Generator[Any, None, None]:
    """Yield for ever; note each item as it is made."""
    number = 0
    try:
        while True:
            number += 1
            notes.append((name, number))
            yield bytes(size) if size else number
    finally:
        notes.append(f"{name} closed")


async def acounts(name: str, size: int = 0) -> AsyncIterator[Any]:
    """Do the same on the loop."""
    with contextlib.closing(counts(name, size)) as made:
        for item in made:
            yield item


def stuck_after(name: str) -> Iterator[int]:
    """Yield once, then run for ever."""
    yield 1
    spin(name)


async def astuck_after(name: str) -> AsyncIterator[int]:
    """Yield once, then wait for ever."""
    yield 1
    notes.append(f"{name} began")
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.01)
        notes.append(f"{name} cleaned up")


async def aclings(name: str) -> AsyncIterator[int]:
    """Go on yielding when it is cancelled."""
    number = 0
    try:
        while True:
            number += 1
            notes.append(f"{name} {number}")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60 if number == 2 else 0)
            yield number
    finally:
        notes.append(f"{name} closed")


def clings(name: str) -> Iterator[int]:
    """Yield where it should end, once."""
    clung = False
    while True:
        try:
            yield 1
        except GeneratorExit:
            if clung:
                raise
            clung = True
            notes.append(f"{name} clings")


def unsendable_third() -> Iterator[Any]:
    """Yield two good items and a bad one."""
    try:
        yield 1
        yield bytes(1 << 20)
        yield threading.Lock()
        notes.append("went on")
    finally:
        notes.append("unsendable closed")


async def aunsendable_third() -> AsyncIterator[Any]:
    """Do the same on the loop."""
    try:
        yield 1
        yield bytes(1 << 20)
        yield threading.Lock()
        notes.append("went on")
    finally:
        notes.append("unsendable closed")


def iterator_of_class() -> Any:
    """Return an iterator that is no generator."""
    return iter([1, 2, 3])


def wraps_generator(*args: Any) -> Any:
    """Return what a generator function gives."""
    return counts(*args)


def wraps_async_generator(*args: Any) -> Any:
    """Return what an async generator function gives."""
    return acounts(*args)


def forks_between(code: int) -> Iterator[int]:
    """Fork, and go on in both processes."""
    try:
        yield 0
        pid = os.fork()
        yield pid
        yield os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) + code
    finally:
        notes.append(os.getpid())


async def aforks_between(code: int) -> AsyncIterator[int]:
    """Do the same on the loop."""
    yield 0
    pid = os.fork()
    yield pid
    yield os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) + code


def forks_and_raises() -> Iterator[int]:
    """Fork, and raise in the child."""
    pid = os.fork()
    if pid == 0:
        raise ValueError("in the child of a generator")
    yield os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def multiprocesses(method: str) -> Iterator[int]:
    """Yield what a pool of processes makes, and log in its children."""
    import multiprocessing

    context: Any = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        yield from pool.imap(_logged, range(4))


def _logged(number: int) -> int:
    _log.warning("logged in a child: %d", number)
    return number * number


def prints_and_yields(count: int) -> Iterator[int]:
    """Print without an end of line before each item."""
    for number in range(count):
        print(f"<{number}>", end="")  # noqa: T201 - what is tested
        yield number


def yields_carried() -> Iterator[list[Any]]:
    """Yield it again and again; note it when closed."""
    try:
        while True:
            yield [carried.get(), context.get("name")]
    finally:
        notes.append([carried.get(), context.get("name")])


async def ayields_carried() -> AsyncIterator[list[Any]]:
    """Do the same on the loop."""
    try:
        while True:
            yield [carried.get(), context.get("name")]
    finally:
        notes.append([carried.get(), context.get("name")])
