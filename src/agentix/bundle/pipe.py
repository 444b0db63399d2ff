"""Connect code that writes to code that reads, in one process and in bounded memory."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentix.bundle.channel import Channel

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
    chunks: Channel[bytes | BaseException | None] = Channel(_DEPTH)
    left = False

    def write(data: bytes) -> None:
        chunks.put(data)
        if left:
            raise _ReaderLeft

    def run() -> None:
        try:
            producer(write)
        except BaseException as error:
            chunks.put_last(error)
        else:
            chunks.put_last(None)

    def read() -> Iterator[bytes]:
        while (item := chunks.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            chunks.free()
            yield item

    thread = threading.Thread(target=run, name="bundle-writer", daemon=True)
    thread.start()
    try:
        yield read()
    finally:
        left = True
        chunks.free()  # for the write that waits, which is the last
        thread.join()
