"""Functions that tests call remotely; what a bundle's project would hold."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator


def noop(value: Any = None) -> Any:
    """Return the argument."""
    return value


async def anoop(value: Any = None) -> Any:
    """Return the argument, on the loop."""
    return value


async def asleep(seconds: float) -> None:
    """Wait on the loop."""
    await asyncio.sleep(seconds)


def sleep(seconds: float) -> None:
    """Block a thread."""
    time.sleep(seconds)


def blob(size: int) -> bytes:
    """Make a large result."""
    return bytes(size)


async def ablob(size: int) -> bytes:
    """Make a large result on the loop."""
    return bytes(size)


def length(data: bytes) -> int:
    """Take a large argument."""
    return len(data)


def echo(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return all arguments."""
    return args, kwargs


# Where and how a function runs


def process() -> int:
    """Tell the worker's process id."""
    return os.getpid()


async def aprocess() -> int:
    """Tell the worker's process id from the loop."""
    return os.getpid()


def thread() -> str:
    """Tell the thread's name."""
    return threading.current_thread().name


def environment() -> dict[str, Any]:
    """Tell what surrounds the worker."""
    return {
        "environ": dict(os.environ),
        "cwd": str(Path.cwd()),
        "path": sys.path,
        "argv": sys.argv,
        "pgid": os.getpgid(0),
        "descriptors": sorted(int(fd.name) for fd in Path("/proc/self/fd").iterdir()),
        "nofile": __import__("resource").getrlimit(__import__("resource").RLIMIT_NOFILE),
    }


def read_stdin() -> tuple[bytes, str]:
    """Read standard input here and in a child."""
    child = subprocess.run(["cat"], capture_output=True, text=True, timeout=10, check=True)
    return os.read(0, 10), child.stdout


def write_stdout(data: bytes) -> int:
    """Write raw bytes to standard output."""
    print("printed", flush=True)  # noqa: T201 - what is tested
    return os.write(1, data)


def write_descriptors(data: bytes) -> int:
    """Write to every descriptor that a program could reach without knowing it."""
    written = 0
    for fd in range(1, 10):
        try:
            written += os.write(fd, data)
        except OSError:
            continue
    return written


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def swap_variable(value: str) -> str:
    """Set a context variable and tell what it was."""
    before = variable.get()
    variable.set(value)
    return before


async def aswap_variable(value: str) -> str:
    """Do the same on the loop."""
    return swap_variable(value)


def numbers() -> Iterator[int]:
    """Generate."""
    yield 1


# Decorated and nested functions


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function, async or not, in a plain one."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@traced
def wrapped(value: int) -> int:
    """Be wrapped."""
    return value + 1


@traced
async def awrapped(value: int) -> int:
    """Be wrapped, and a coroutine function."""
    await asyncio.sleep(0)
    return value + 1


def sync_that_awaits(value: int) -> Coroutine[Any, Any, int]:
    """Give a coroutine without being a coroutine function."""
    return anoop(value)


@functools.lru_cache
def cached(value: int) -> int:
    """Be cached."""
    return value * 2


class Tools:
    """Holds functions."""

    @staticmethod
    def static(value: int) -> int:
        """Be static."""
        return value * 3

    @classmethod
    def of_class(cls, value: int) -> int:
        """Be bound to the class."""
        return value

    def method(self) -> None:
        """Be bound to an object."""

    class Inner:
        """Nested."""

        @staticmethod
        def deep(value: int) -> int:
            """Be deeper."""
            return value * 5


# Cancelling

log: list[str] = []


async def wait_and_tell(name: str) -> None:
    """Wait for ever, and note how it ended."""
    log.append(f"{name} began")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        log.append(f"{name} cancelled")
        raise


def block_and_tell(name: str, seconds: float) -> None:
    """Block, and note the end."""
    log.append(f"{name} began")
    time.sleep(seconds)
    log.append(f"{name} ended")


async def ignore_cancel(seconds: float) -> str:
    """Refuse to be cancelled."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        return "refused"
    return "waited"


def told() -> list[str]:
    """Tell what was noted."""
    return log


released = threading.Event()
waiting = threading.Semaphore(0)


def hold() -> None:
    """Have the functions below wait."""
    released.clear()
    while waiting.acquire(blocking=False):
        pass


def held(count: int) -> None:
    """Return once so many of them wait."""
    for _ in range(count):
        assert waiting.acquire(timeout=30)


def release() -> None:
    """Have them return."""
    released.set()


def block_until_release() -> str:
    """Block a thread."""
    waiting.release()
    released.wait(60)
    return "released"


async def await_release() -> str:
    """Wait on the loop."""
    waiting.release()
    while not released.is_set():
        await asyncio.sleep(0.01)
    return "released"


async def running() -> int:
    """Count the calls that the worker is running, this one included."""
    task: Any = asyncio.current_task()
    return len(task.get_coro().cr_frame.f_locals["self"]._running)


counter = 0


def count() -> int:
    """Count the runs."""
    global counter
    counter += 1
    return counter


def busy(seconds: float) -> None:
    """Keep the interpreter busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def hold_loop(folder: str) -> None:
    """Block the worker's loop, say so in a folder, and go on once somebody puts a file there."""
    Path(folder, "held").touch()
    end = time.monotonic() + 60
    while not Path(folder, "go").exists() and time.monotonic() < end:
        time.sleep(0.005)


# Waiting for files: of a worker that gets no more calls, too


def begun(path: str) -> None:
    """Tell that a function waits for a file."""
    Path(f"{path}-waited-for").touch()


async def until(path: str, value: Any = None) -> Any:
    """Return the value once there is such a file."""
    begun(path)
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return value


def block_until(path: str, value: Any = None) -> Any:
    """Block a thread until there is such a file, whatever is raised in it."""
    begun(path)
    while not Path(path).exists():
        try:
            time.sleep(0.01)
        except BaseException:
            continue
    return value


async def auntil(path: str, value: Any = None) -> Any:
    """Return the value once there is such a file, and not before, cancelled or not."""
    begun(path)
    while not Path(path).exists():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
    return value


def flood(frame: bytes, seconds: float) -> int:
    """Write the same frame to the channel again and again; tell how often."""
    import select
    import socket

    for fd in range(64, 1024):  # below are the loop's own sockets
        try:
            found = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        with found:
            if found.family == socket.AF_UNIX and found.getpeername() == "":
                break
    else:
        raise OSError("there is no channel")
    found = socket.socket(fileno=os.dup(fd))
    with found:
        end = time.monotonic() + seconds
        count = 0
        while time.monotonic() < end:
            piece = memoryview(frame * 1000)
            while piece:
                select.select([], [found], [])
                try:
                    piece = piece[found.send(piece) :]
                except BlockingIOError:
                    continue
            count += 1000
    return count
