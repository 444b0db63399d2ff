"""Connect code that writes to code that reads, in one process and in bounded memory."""

from __future__ import annotations

import queue
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DEPTH = 4


class _ReaderLeft(BaseException):
    """Ends the writer when nobody reads any more."""


@contextmanager
def pumped(producer: Callable[[Callable[[bytes], object]], object]) -> Iterator[Iterator[bytes]]:
    """Run *producer* in a thread, with a function to write to; give the chunks that it writes.

    What *producer* raises is raised by the iterator. Leaving the context ends the thread.
    """
    chunks: queue.Queue[bytes | BaseException | None] = queue.Queue(_DEPTH)
    left = threading.Event()

    def write(data: bytes) -> None:
        chunks.put(data)
        if left.is_set():
            raise _ReaderLeft

    def run() -> None:
        try:
            producer(write)
        except BaseException as error:
            chunks.put(error)
        else:
            chunks.put(None)

    def read() -> Iterator[bytes]:
        while (item := chunks.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    thread = threading.Thread(target=run, name="bundle-writer", daemon=True)
    thread.start()
    try:
        yield read()
    finally:
        left.set()
        while thread.is_alive():
            try:
                chunks.get(timeout=0.01)
            except queue.Empty:
                continue
        thread.join()
