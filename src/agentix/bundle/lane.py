"""A thread for work that must be done in order but not at once: hashing, while files are read."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from agentix.bundle.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

_DEPTH = 8  # chunks in flight: enough to smooth, few enough to keep memory bounded


class Lane:
    """Run functions one after the other on one thread; the first that raises stops them all."""

    def __init__(self, name: str) -> None:
        self._jobs: Channel[Callable[[], object] | None] = Channel(_DEPTH)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._error = self._error or error  # what is still queued is not worth doing
        self._jobs.put_last(None)
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def do(self, job: Callable[[], object]) -> None:
        """Queue *job*; wait while the lane is far behind. Raise what an earlier job raised."""
        if self._error is not None:
            raise self._error
        self._jobs.put(job)

    def drain(self) -> None:
        """Wait until everything queued is done. Raise what a job raised."""
        self._jobs.drain()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if self._error is None:
                    job()
            except BaseException as error:
                self._error = error
            finally:
                self._jobs.free()
