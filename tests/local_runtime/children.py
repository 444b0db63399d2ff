"""Functions that fork, start processes, or meddle with the worker's own."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import subprocess
import time
from pathlib import Path
from typing import Any


def fork_and_return() -> int:
    """Return twice: in the worker and in a child."""
    return os.fork()


async def afork_and_return() -> int:
    """Return twice, from the loop."""
    return os.fork()


async def afork_and_wait() -> int:
    """Go on waiting in the child too."""
    pid = os.fork()
    await asyncio.sleep(0.01)
    return pid


async def fork_amid_a_frame() -> tuple[int, int]:
    """Fork once a payload's memory has come; count what the parent and the child have of it."""
    async with asyncio.timeout(20):
        while not _shared_memory():
            await asyncio.sleep(0.001)
    pid = os.fork()
    if pid == 0:
        os._exit(_shared_memory())
    return _shared_memory(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _shared_memory() -> int:
    """Count the descriptors of payloads that this process has."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the folder itself
            found += "memfd:agentix" in str(path.readlink())
    return found


def fork_and_raise() -> int:
    """Raise in the child only."""
    pid = os.fork()
    if pid == 0:
        raise ValueError("in the child")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what is tested


def multiprocess(method: str) -> list[int]:
    """Use a process pool."""
    context: Any = multiprocessing.get_context(method)
    child = context.Process(target=_print, args=("from a child",))
    child.start()
    child.join(20)
    with context.Pool(2) as pool:
        found: list[int] = pool.map(abs, [-1, -2, -3])
        return found


_kept: list[Any] = []
"""What is not to be ended when nothing else refers to it."""


def start_daemon() -> int:
    """Leave a process behind, in a session of its own."""
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdin=subprocess.DEVNULL)
    _kept.append(child)
    return child.pid


def orphans(count: int) -> None:
    """Make processes whose parent ends before they do."""
    for _ in range(count):
        subprocess.run(["sh", "-c", "sleep 0.1 & exit"], check=True)


def write_nonsense_to_channel() -> None:
    """Find the worker's channel, as hostile code would, and write to it."""
    import socket

    for fd in range(3, 1024):
        try:
            found = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        with found:
            if found.family == socket.AF_UNIX and found.getpeername() == "":
                try:
                    found.sendall(b"\xff" * 64)
                except OSError:
                    continue
    time.sleep(30)


def processes() -> int:
    """Count the processes there are, dead ones that nobody has collected included."""
    return sum(entry.name.isdigit() for entry in Path("/proc").iterdir())
