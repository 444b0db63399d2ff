"""The items of a stream on their way from its generator to its caller.

The worker makes only so many beyond those that were taken; one that makes more is out of order.
What has been given stays here until the caller asks for what follows it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from agentix.wire.errors import MalformedError
from agentix.wire.protocol import WINDOW, WINDOW_BYTES
from agentix_runtime.parcel import Parcel, drop

if TYPE_CHECKING:
    from agentix.wire.messages import Item
    from agentix_runtime.parcel import Payload

_MOST: Final = 64
_MOST_BYTES: Final = 1 << 20
"""Of one answer, unless it is a single item that travels alone."""


class Yielded(NamedTuple):
    """An item that waits to be taken."""

    head: bytes
    payload: Payload
    size: int


class Stream:
    """The items that have been made and not been taken, in order."""

    def __init__(self) -> None:
        self.last = 0
        """The number of the last item that was made."""
        self.size = 0
        self._items: deque[Yielded] = deque()

    @property
    def taken(self) -> int:
        """The number of the last item that is not here any more."""
        return self.last - len(self._items)

    def add(self, item: Item, head: bytes, payload: Payload) -> None:
        """Append an item, or raise MalformedError."""
        if item.number != self.last + 1:
            raise MalformedError("an item of a stream is out of order")
        if len(self._items) >= WINDOW or self.size >= WINDOW_BYTES:
            raise MalformedError("a stream makes more items than are asked for")
        size = payload.size if isinstance(payload, Parcel) else len(payload)
        self._items.append(Yielded(head, payload, size))
        self.last += 1
        self.size += size

    def take(self, number: int) -> bool:
        """Let go of the items up to this number; tell whether there were any."""
        before = self.taken
        while self._items and self.taken < number:
            item = self._items.popleft()
            self.size -= item.size
            drop(item.payload)
        return self.taken > before

    def some(self) -> list[tuple[bytes, Payload]]:
        """Give as many of the next items as go into one answer."""
        found: list[tuple[bytes, Payload]] = []
        room = _MOST_BYTES
        for item in self._items:
            if isinstance(item.payload, Parcel):
                return found or [(item.head, item.payload)]
            room -= item.size
            if found and room < 0:
                break
            found.append((item.head, item.payload))
            if len(found) == _MOST:
                break
        return found

    def close(self) -> None:
        """Let go of all."""
        self.take(self.last)
