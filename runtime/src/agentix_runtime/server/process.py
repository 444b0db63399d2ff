"""Processes: starting the worker, hearing of its end, and leaving nothing behind.

The runtime may be the first process of its container. Then every orphan becomes its child, and it
has to collect each one that ends; where it is not the first, it asks the kernel for the same role.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from agentix_runtime.pair import WORKER_FD, pair

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable

_PR_SET_CHILD_SUBREAPER: Final = 36


def adopt_orphans() -> None:
    """Ask the kernel to make this process the parent of orphaned descendants."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Limits(NamedTuple):
    """Limits on open files: the server takes what it may have, everything else keeps its own."""

    soft: int
    hard: int

    @classmethod
    def raised(cls) -> Limits:
        """Raise this process's limit as far as it goes; remember what it was."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return cls(soft, hard)

    def restore(self, pid: int) -> None:
        """Give a child the limit that this process was started with."""
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (self.soft, self.hard))


class Spawned(NamedTuple):
    """A worker process, leader of a session of its own, and the server's ends of what it has."""

    pid: int
    sock: socket.socket
    stdout: int
    stderr: int


def spawn_worker(limits: Limits) -> Spawned:
    """Start a worker. Takes nothing of the server's; what it writes goes into pipes."""
    with contextlib.ExitStack() as until_started, contextlib.ExitStack() as until_spawned:
        ours, theirs = pair()
        until_started.callback(ours.close)
        until_spawned.callback(theirs.close)
        actions = [_becomes(theirs.fileno(), WORKER_FD, until_spawned)]
        outputs = []
        for fd in (1, 2):
            reading, writing = os.pipe2(os.O_CLOEXEC)
            outputs.append(reading)
            until_started.callback(os.close, reading)
            until_spawned.callback(os.close, writing)
            actions.append(_becomes(writing, fd, until_spawned))
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-m", "agentix_runtime.worker", str(os.getpid())],
            os.environ,
            file_actions=actions,
            setsid=True,
            # What the host program ignores (under nohup, in the background) comes down to here.
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
        until_started.pop_all()
    limits.restore(pid)
    return Spawned(pid, ours, *outputs)


def _becomes(fd: int, number: int, until_spawned: contextlib.ExitStack) -> tuple[int, int, int]:
    """Give a child this descriptor under that number."""
    # posix_spawn's dup2 leaves a descriptor close-on-exec that already has the right number.
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, WORKER_FD + 1)
    until_spawned.callback(os.close, high)
    return os.POSIX_SPAWN_DUP2, high, number


class Reaper:
    """Collects every child that ends, also adopted ones, and tells who waits for one of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waiting: dict[int, Callable[[int], None]] = {}
        loop.add_signal_handler(signal.SIGCHLD, self.reap)

    def watch(self, pid: int, ended: Callable[[int], None]) -> None:
        """Call ``ended`` with the exit code of a child; negative numbers are signals."""
        self._waiting[pid] = ended

    def reap(self) -> None:
        """Collect all that have ended by now."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (ended := self._waiting.pop(pid, None)) is not None:
                ended(os.waitstatus_to_exitcode(status))


def kill_group(leader: int) -> None:
    """Kill a worker and the processes of its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def kill_children(within: float) -> None:
    """Kill all children, and theirs as they become ours, until none is left or time is up."""
    end = time.monotonic() + within
    while (children := _children()) and time.monotonic() < end:
        for pid in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)


def _children() -> list[int]:
    me = os.getpid()
    found = []
    with contextlib.suppress(OSError):
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    # pid (name) state parent …; the name may hold anything, also ')'
                    rest = (entry / "stat").read_bytes().rpartition(b")")[2]
                    if int(rest.split()[1]) == me:
                        found.append(int(entry.name))
    return found
