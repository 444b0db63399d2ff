"""One direction's events, numbered, so that each arrives once however often the connection breaks.

Whoever sends keeps an item until the other side tells that it has it. After a new connection is
made, each side tells the number of the last item it has, and the other one goes on from there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agentix.wire.errors import MalformedError
from agentix.wire.protocol import MAX_SIGNAL

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_ITEMS: Final = 4096
MAX_BYTES: Final = 3 * MAX_SIGNAL
"""What may wait in a line; one item more always fits in once half of it is free."""


@dataclass(frozen=True, slots=True)
class Item:
    """An event on its way: where to, what it is called, and its arguments behind the number."""

    number: int
    namespace: str
    event: str
    arguments: tuple[Any, ...]
    size: int


class Line:
    """What is sent and not yet known to have arrived, and how far the other side's items go."""

    def __init__(self) -> None:
        self._kept: deque[Item] = deque()
        self._bytes = 0
        self._last = 0
        self._sent = 0
        self.seen = 0
        """The number of the last item that has arrived here."""

    def add(self, namespace: str, event: str, *arguments: Any, size: int = 0) -> None:
        """Put an item at the end."""
        self._last += 1
        self._kept.append(Item(self._last, namespace, event, arguments, size))
        self._bytes += size

    def unsent(self) -> Iterator[Item]:
        """Give the items that have not been sent over this connection, each once."""
        while self._sent < self._last:
            item = self._kept[self._sent - self._last]
            self._sent += 1
            yield item

    def taken(self, number: Any) -> None:
        """Forget the items up to this number: the other side has them."""
        if type(number) is not int or not 0 <= number <= self._last:
            raise MalformedError("an item is said to have arrived that was never sent")
        while self._kept and self._kept[0].number <= number:
            self._bytes -= self._kept.popleft().size
        self._sent = max(self._sent, number)

    def resume(self, number: Any) -> None:
        """Go on over a new connection, behind the last item that the other side has."""
        self.taken(number)
        self._sent = self._last - len(self._kept)

    def arrived(self, number: Any) -> bool:
        """Note an item of the other side's; ``False`` for one that has been here before."""
        if type(number) is not int or not 0 < number <= self.seen + 1:
            raise MalformedError("an item came out of its turn")
        if number <= self.seen:
            return False
        self.seen = number
        return True

    @property
    def empty(self) -> bool:
        """Whether all items have arrived."""
        return not self._kept

    @property
    def crowded(self) -> bool:
        """Whether senders should wait before they add more."""
        return len(self._kept) > MAX_ITEMS // 2 or self._bytes > MAX_BYTES // 2

    @property
    def full(self) -> bool:
        """Whether no more is to be added."""
        return len(self._kept) >= MAX_ITEMS or self._bytes >= MAX_BYTES
