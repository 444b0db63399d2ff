"""The sandbox's half of a plugin with a namespace, and functions that use it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from agentix.errors import RemoteSioError
from agentix.sio import Namespace, register_namespace


class StatusError(Exception):
    """An upstream service's error."""

    def __init__(self, text: str, status_code: Any) -> None:
        super().__init__(text)
        self.status_code = status_code


class Plugin(Namespace):
    """Takes events of both kinds."""

    namespace = "/plugin"

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.noted: list[Any] = []

    async def on_echo(self, data: Any) -> Any:
        return data

    def on_echo_in_thread(self, data: Any) -> Any:
        return [threading.current_thread() is threading.main_thread(), data]

    async def on_fail(self, data: Any) -> None:
        raise StatusError(*data)

    def on_fail_in_thread(self, data: Any) -> None:
        raise StatusError(*data)

    async def on_unplain(self, data: Any) -> Any:
        return object()

    def on_begin(self, data: Any) -> None:
        self.begun.append(data)
        time.sleep(0.001)

    async def on_note(self, data: Any) -> None:
        self.noted.append(data)

    async def on_bare(self) -> str:
        return "without data"

    async def on_hang(self, data: Any) -> None:
        await asyncio.sleep(3600)

    async def on_die(self, data: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


plugin = Plugin()
register_namespace(plugin)


async def load() -> int:
    """Be a reason to import this module; tell which process has."""
    return os.getpid()


async def request(event: str, data: Any = None, timeout: float = 30) -> Any:
    """Ask the host."""
    return await plugin.request(event, data, timeout=timeout)


def request_in_thread(event: str, data: Any = None) -> Any:
    """Ask the host from a sync function."""
    return asyncio.run(plugin.request(event, data))


async def requests(event: str, count: int) -> list[Any]:
    """Ask the host many things at once."""
    return await asyncio.gather(*(plugin.request(event, n) for n in range(count)))


async def failing(event: str, data: Any = None, timeout: float = 30) -> list[Any]:
    """Ask the host what it fails at, and tell how."""
    began = time.monotonic()
    try:
        await plugin.request(event, data, timeout=timeout)
    except RemoteSioError as error:
        return [error.type, error.message, error.status_code, time.monotonic() - began]
    except Exception as error:
        return [type(error).__name__, str(error), None, time.monotonic() - began]
    return ["nothing", "", None, 0.0]


async def length_of(event: str, size: int) -> int:
    """Ask the host with much data, and tell how long the reply is."""
    return len(await plugin.request(event, "x" * size))


async def failing_with_bytes(event: str, size: int) -> list[Any]:
    """Ask the host with so many bytes, and tell how that fails."""
    return await failing(event, bytes(size))


async def emit(event: str, data: Any) -> None:
    """Send the host one event."""
    await plugin.emit(event, data)


async def emit_numbers(event: str, count: int, pause: float = 0) -> None:
    """Send the host many events."""
    for number in range(count):
        await plugin.emit(event, number)
        if pause:
            await asyncio.sleep(pause)


def emit_from_threads(event: str, threads: int, count: int) -> None:
    """Send the host events from several threads."""

    def emit(thread: int) -> None:
        for number in range(count):
            asyncio.run(plugin.emit(event, [thread, number]))

    started = [threading.Thread(target=emit, args=(n,)) for n in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


async def begun() -> list[Any]:
    """Tell which events the handler in threads began with, in order."""
    return list(plugin.begun)


async def noted() -> list[Any]:
    """Tell which events the async handler was given, in order."""
    return list(plugin.noted)


async def emit_blobs(event: str, count: int, size: int) -> None:
    """Send the host many large events."""
    for number in range(count):
        await plugin.emit(event, [number, bytes(size)])


def look_in(folder: str) -> None:
    """Let the worker import modules from a folder."""
    sys.path.insert(0, folder)


async def mark(path: str, number: int, seconds: float) -> int:
    """Take a while, and leave a mark for each time it runs."""
    with Path(path).open("a") as file:
        file.write(f"{number}\n")
    await asyncio.sleep(seconds)
    return number
