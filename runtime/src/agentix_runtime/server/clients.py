"""Which clients are there: a client is, while a request of its is open or it is connected."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix_runtime.server.call import Asking

_LEFT: Final = 1024


@dataclass(slots=True)
class Client:
    """A client, and the ids of its calls that run or whose answers are kept."""

    name: str
    open: int = 0
    """Its requests and connections."""
    since: float = 0.0
    """When the last of them ended."""
    calls: set[str] = field(default_factory=set)
    following: list[Asking] = field(default_factory=list)


class Clients:
    """All clients that are there, or were not long ago."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._left: OrderedDict[str, None] = OrderedDict()

    def enter(self, name: str) -> Client:
        """Begin a request, or a connection."""
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = Client(name)
        client.open += 1
        return client

    @staticmethod
    def leave(client: Client) -> None:
        """End what was entered."""
        client.open -= 1
        if not client.open:
            client.since = time.monotonic()

    def remove(self, name: str) -> Client | None:
        """Forget a client, one that has said farewell."""
        self._left[name] = None
        if len(self._left) > _LEFT:
            self._left.popitem(last=False)
        return self._clients.pop(name, None)

    def has_left(self, name: str) -> bool:
        """Tell whether a client has said farewell: what still arrives of it is late."""
        return name in self._left

    def absent(self, since: float) -> Iterator[Client]:
        """Take out the clients of which nothing was seen after that time."""
        for client in [one for one in self._clients.values() if not one.open]:
            if client.since <= since:
                del self._clients[client.name]
                yield client


def client_of(call_id: str) -> str:
    """Give the name with which a call's id begins."""
    return call_id.rpartition("-")[0]
