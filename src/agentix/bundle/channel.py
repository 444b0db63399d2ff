"""A bounded queue between two threads, one of which may be interrupted at any moment.

``queue.Queue`` takes its locks in Python: an interrupt between taking one and the block that gives
it back leaves it locked, and the next who needs it, the same thread when it cleans up, waits
forever.
"""

from __future__ import annotations

from queue import SimpleQueue
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Channel(Generic[_T]):
    """Hands items over in order, at most *depth* of them at once."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._items: SimpleQueue[_T] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        self.free(depth)

    def put(self, item: _T) -> None:
        """Hand over *item* as soon as there is room for it."""
        self._room.get()
        self._items.put(item)

    def put_last(self, item: _T) -> None:
        """Hand over *item*, which nothing follows, at once."""
        self._items.put(item)

    def get(self) -> _T:
        """Wait for the next item. It takes up room until :meth:`free` is called."""
        return self._items.get()

    def free(self, items: int = 1) -> None:
        """Make room: so many *items* are done with."""
        for _ in range(items):
            self._room.put(None)

    def drain(self) -> None:
        """Wait until all items are done with."""
        for _ in range(self._depth):
            self._room.get()
        self.free(self._depth)
