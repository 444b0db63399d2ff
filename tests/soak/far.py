"""What the soak calls. A call marks that it runs by a file, which there can be only once."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentix import trace
from agentix.sio import Namespace, register_namespace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_log = logging.getLogger("soak")


class Near(Namespace):
    """The sandbox's half of the namespace."""

    namespace = "/soak"

    async def on_echo(self, data: Any) -> Any:
        return data


_near = Near()
register_namespace(_near)


def mark(path: str) -> None:
    """Leave a mark for a call, or one that it runs for the second time."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        Path(f"{path}.twice").touch()
        raise


def sync(path: str, value: Any) -> Any:
    """Give a value back, from a thread."""
    mark(path)
    return value


async def wait(path: str, value: Any, seconds: float = 0) -> Any:
    """Give a value back after a while."""
    mark(path)
    await asyncio.sleep(seconds)
    return value


def block(path: str, value: Any, seconds: float) -> Any:
    """Do so in a thread, which hears of a cancellation soon."""
    mark(path)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.02)
    return value


def deaf(path: str, seconds: float) -> None:
    """Block a thread in C."""
    mark(path)
    time.sleep(seconds)


def large(path: str, size: int) -> bytes:
    """Return much."""
    mark(path)
    return b"%d" % (size % 10) * size


def checksum(path: str, data: bytes) -> int:
    """Take much."""
    mark(path)
    return zlib.crc32(data)


async def numbers(path: str, count: int, size: int = 0) -> AsyncIterator[tuple[int, bytes]]:
    """Stream from the loop."""
    mark(path)
    for number in range(count):
        yield number, bytes(size)
        await asyncio.sleep(0)


def threaded_numbers(path: str, count: int) -> Iterator[int]:
    """Stream from a thread."""
    mark(path)
    yield from range(count)


def talk(path: str, name: str, lines: int) -> str:
    """Log and print."""
    mark(path)
    for line in range(lines):
        _log.info("%s %d", name, line)
        print(f"{name} {line}")  # noqa: T201
    return name


async def traced(path: str, name: str) -> str:
    """Open spans."""
    mark(path)
    with trace.span(name):
        await asyncio.sleep(0)
        with trace.span(f"{name} inner", n=1):
            pass
    return name


async def ask(path: str, name: str, number: int) -> Any:
    """Ask the host."""
    mark(path)
    await _near.emit("note", name)
    return await _near.request("double", [name, number])


def fail(path: str, text: str) -> None:
    """Raise."""
    mark(path)
    raise ValueError(text)


def die(path: str, how: str) -> None:
    """End the worker."""
    mark(path)
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(10)


async def counts() -> dict[str, int]:
    """Tell how much this worker holds."""
    return {"pid": os.getpid(), **held()}


def held() -> dict[str, int]:
    """Count what the process of the running loop has, once nothing is kept that is free."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return {"tasks": len(asyncio.all_tasks()), "objects": len(gc.get_objects())}
