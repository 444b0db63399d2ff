"""Threads for synchronous functions: as many as there are calls at once, reused while warm.

The one that worked last works next. A pool of a fixed size would let calls that only wait hold up
all others, so this one grows; past its bound, calls wait their turn.
"""

from __future__ import annotations

import contextlib
import contextvars
import queue
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST: Final = 1024
_IDLE: Final = 60.0

Job: TypeAlias = "Callable[[], None]"


class Threads:
    """Runs jobs in threads. One thread alone gives them out; a job must not raise."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[Job]] = []
        self._all: set[int] = set()
        self._waiting: deque[Job] = deque()

    def run(self, job: Job) -> None:
        """Run a job in a thread, or raise RuntimeError if the sandbox cannot have a single one."""
        try:
            self._idle.pop().put(job)
        except IndexError:
            self._grow(job)

    def _grow(self, job: Job) -> None:
        if len(self._all) < _MOST:
            inbox: queue.SimpleQueue[Job] = queue.SimpleQueue()
            inbox.put(job)
            thread = threading.Thread(
                target=self._work, args=(inbox,), name=f"agentix-{len(self._all)}", daemon=True
            )
            try:
                contextvars.Context().run(thread.start)  # not in that of whoever needs it
            except RuntimeError:  # the sandbox may have no more threads
                if not self._all:
                    raise
            else:
                self._all.add(id(inbox))
                return
        self._waiting.append(job)
        # One may have become idle just before it could have seen this job.
        with contextlib.suppress(IndexError):
            self._idle.pop().put(self._waiting.popleft())

    def _work(self, inbox: queue.SimpleQueue[Job]) -> None:
        while True:
            try:
                job = inbox.get(timeout=_IDLE)
            except queue.Empty:
                with contextlib.suppress(ValueError):
                    self._idle.remove(inbox)
                    self._all.discard(id(inbox))
                    return
                continue  # a job is on its way
            while True:
                job()
                del job  # hold nothing of a call while waiting for the next one
                try:
                    job = self._waiting.popleft()
                except IndexError:
                    break
            self._idle.append(inbox)
