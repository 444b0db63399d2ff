"""Functions that are hard to end, to send, or to keep apart."""

from __future__ import annotations

import ast
import asyncio
import contextvars
import functools
import logging
import os
import subprocess
import sys
import threading
import time
from typing import Any

from agentix import context
from local_runtime.failing import FAILURES
from local_runtime.far import anoop

notes: list[Any] = []
"""What the functions below note, in order."""

_log = logging.getLogger("local_runtime.hard")


# In threads


def spin(name: str, seconds: float = 30) -> str:
    """Run Python code for a while, unless it is interrupted."""
    notes.append(f"{name} began")
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            pass
    except BaseException as error:
        notes.append((name, type(error) is asyncio.CancelledError))
        raise
    finally:
        notes.append(f"{name} cleaned up")
    return name


def doze(name: str, seconds: float) -> str:
    """Block in C; then go on."""
    notes.append(f"{name} began")
    time.sleep(seconds)
    notes.append(f"{name} woke")
    while True:
        pass


def stubborn(name: str) -> str:
    """Swallow the exception, and note whether there is a second one."""
    notes.append(f"{name} began")
    count = 0
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            while time.monotonic() < end:
                pass
        except BaseException:
            count += 1
            end = time.monotonic() + 0.5
    return f"{count}"


def cleans_slowly(name: str) -> None:
    """Clean up for a while, by code that could be interrupted, too."""
    try:
        spin(name)
    finally:
        for _ in range(200_000):
            pass
        _log.info("%s cleaned up slowly", name)
        notes.append(f"{name} cleaned up slowly")


def brief(number: int) -> int:
    """Take about as long as it takes to cancel it."""
    total = 0
    for one in range(number % 400):
        total += one
    return number


def logs(name: str, lines: int = 1_000_000) -> None:
    """Do nothing but log."""
    notes.append(f"{name} began")
    for line in range(lines):
        _log.info("%s %d", name, line)


async def logs_and_blocks(seconds: float) -> None:
    """Log a line, then hold up the loop."""
    _log.info("before")
    time.sleep(seconds)


def waits_in_threading(name: str) -> None:
    """Go in and out of the threading module, whose locks must not stay locked.

    A thread that did nothing else could not be told: it would always be found at a lock.
    """
    notes.append(f"{name} began")
    while True:
        shared.acquire(timeout=0.0001)
        shared.release()
        sum(range(5000))


shared = threading.Semaphore(4)


# Where several share something

variable: contextvars.ContextVar[str] = contextvars.ContextVar("hard", default="unset")


def context_of_caller() -> str:
    """Tell what the variable is, and set it."""
    before = variable.get()
    variable.set("leaked")
    return before


async def acontext_of_caller() -> str:
    """Do the same on the loop."""
    return context_of_caller()


def forks_while_logging(rounds: int) -> list[int]:
    """Fork again and again while other threads log; each child logs, too."""
    stop = threading.Event()

    def log() -> None:
        while not stop.is_set():
            _log.info("meanwhile")

    threads = [threading.Thread(target=log) for _ in range(3)]
    for thread in threads:
        thread.start()
    codes = []
    for _ in range(rounds):
        pid = os.fork()
        if pid == 0:
            _log.error("in the child")
            os._exit(7)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    stop.set()
    for thread in threads:
        thread.join()
    return codes


# In executors


async def in_executor() -> list[str]:
    """Tell what code in other threads sees of the context."""
    from concurrent.futures import ThreadPoolExecutor

    loop = asyncio.get_running_loop()
    found = [await loop.run_in_executor(None, variable.get)]
    with ThreadPoolExecutor() as pool:
        found.append(await loop.run_in_executor(pool, variable.get))
        found.append(pool.submit(variable.get).result())
    found.append(await asyncio.to_thread(variable.get))
    return found


async def sets_and_tells_in_executor(value: str) -> list[str]:
    """Set the variable, and tell what threads see."""
    variable.set(value)
    return await in_executor()


# Context that a call carries

carried: contextvars.ContextVar[str] = context.var("carried", default="unset")


def tells_carried() -> list[Any]:
    """Tell what of the context has come along, and change it."""
    found = [carried.get(), context.get("name")]
    carried.set("leaked")
    context.set("name", "leaked")
    return found


async def atells_carried() -> list[Any]:
    """Do the same on the loop."""
    return tells_carried()


# Others


def waits_and_fails(how: str) -> None:
    """Raise a little later."""
    time.sleep(0.001)
    raise FAILURES[how]()


async def awaits_and_fails(how: str) -> None:
    """Raise a little later, on the loop."""
    await asyncio.sleep(0.001)
    raise FAILURES[how]()


def leave_failing_thread(how: str) -> None:
    """Leave a thread behind that raises."""

    def later() -> None:
        raise FAILURES[how]()

    threading.Thread(target=later).start()


@functools.wraps(anoop)
def runs_a_loop(value: Any) -> Any:
    """Look like a coroutine function, and run it to its end."""
    return asyncio.run(anoop(value))


async def about_its_task() -> list[Any]:
    """Tell whether there is a task from the first step on, and whether its tools work."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    found: list[Any] = [task is not None, task in asyncio.all_tasks()]
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)
    except TimeoutError:
        found.append("timed out")
    scheduled = asyncio.Event()
    loop.call_soon(scheduled.set)
    await asyncio.wait_for(scheduled.wait(), 10)
    found.append("scheduled")
    return found


def descriptors_of_a_child() -> list[str]:
    """Tell what a child has open."""
    code = (
        "import os, pathlib; fds = pathlib.Path('/proc/self/fd').iterdir();"
        "print([os.readlink(fd) for fd in fds if fd.is_symlink()])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: list[str] = ast.literal_eval(ran.stdout)
    return found
