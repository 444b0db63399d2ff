"""Functions that fail, each in its own way, or whose results cannot be sent."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class OddError(Exception):
    """Needs two arguments, and holds what cannot be pickled."""

    def __init__(self, first: object, second: object) -> None:
        super().__init__(first)
        self.lock = threading.Lock()
        self.second = second


class MuteError(Exception):
    """Cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class LeavingError(Exception):
    """Exits when it is printed."""

    def __str__(self) -> str:
        sys.exit(5)


class BareError(BaseException):
    """Not an Exception at all."""


def _odd() -> BaseException:
    return OddError("one", "two")


def _group() -> BaseException:
    return ExceptionGroup("several", [ValueError("inner"), KeyError("other")])


def _chained() -> BaseException:
    error = ValueError("outer")
    error.__cause__ = OSError("the cause")
    return error


FAILURES: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("bang"),
    "odd": _odd,
    "mute": MuteError,
    "leaving": LeavingError,
    "bare": lambda: BareError("bare"),
    "group": _group,
    "chained": _chained,
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "generator-exit": GeneratorExit,
    "stop": lambda: StopIteration(1),
    "stop-async": lambda: StopAsyncIteration(1),
    "cancelled": asyncio.CancelledError,
    "long": lambda: ValueError("x" * 10_000_000),
    "surrogate": lambda: ValueError("\udc80"),
    "terminal": lambda: ValueError("two\nlines \x1b[2J\r\u202e"),
}


def fail(how: str) -> None:
    """Raise one of the failures."""
    raise FAILURES[how]()


async def afail(how: str) -> None:
    """Raise one of the failures on the loop."""
    raise FAILURES[how]()


async def leave_failing_task(how: str) -> None:
    """Leave a task behind that raises."""

    async def later() -> None:
        raise FAILURES[how]()

    kept.append(asyncio.ensure_future(later()))


async def stop_loop() -> None:
    """Stop the loop that runs the calls."""
    asyncio.get_running_loop().stop()


kept: list[Any] = []


def die(code: int) -> None:
    """End the worker."""
    os._exit(code)


def kill(signum: int) -> None:
    """Kill the worker."""
    os.kill(os.getpid(), signum)
    time.sleep(10)  # another thread may be the one to take it


def close_everything() -> None:
    """Close all descriptors, as a program does that turns itself into a daemon."""
    os.closerange(3, 4096)
    time.sleep(30)


class Plain:
    """A class that is no data."""


def unsendable(what: str) -> Any:
    """Return what has no place in the data model."""
    values: dict[str, Callable[[], Any]] = {
        "generator": lambda: (n for n in range(3)),
        "lock": threading.Lock,
        "lambda": lambda: lambda: None,
        "file": lambda: Path("/dev/null").open(),  # noqa: SIM115
        "object": Plain,
        "class": lambda: Plain,
        "deep": deep,
        "cycle": cycle,
        "huge int": lambda: 1 << 10_000_000,
    }
    return values[what]()


def deep() -> list[Any]:
    """Nest far too deep."""
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


def cycle() -> list[Any]:
    """Return a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value
