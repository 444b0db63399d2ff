"""One call, and the requests that wait for its outcome."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from agentix.wire import messages
from agentix.wire.errors import MalformedError
from agentix.wire.messages import Failure, Pending
from agentix_runtime.parcel import Parcel, drop
from agentix_runtime.server.streams import Stream

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from agentix.wire.fields import FailureKind
    from agentix.wire.messages import Call, Item
    from agentix_runtime.parcel import Payload
    from agentix_runtime.server.calls import Calls
    from agentix_runtime.server.clients import Client
    from agentix_runtime.server.worker import Worker

Sections: TypeAlias = "Sequence[tuple[bytes, Payload]]"


class Answer(NamedTuple):
    """The answer to a request. Parcels in it are the asker's own, to be closed."""

    mark: int
    sections: Sections
    call: str = ""
    """Of which call it tells the outcome: ``Calls.arrived`` is to be told once it has arrived."""


class Asking:
    """A request that waits for its answer."""

    __slots__ = ("_calls", "_done", "after", "call", "client", "task", "timer")

    def __init__(self, calls: Calls, client: Client, done: Callable[[Answer], None]) -> None:
        self._calls = calls
        self.client = client
        self._done: Callable[[Answer], None] | None = done
        self.after = 0
        self.call: Running | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    def leave(self) -> None:
        """Stop waiting: who asked has gone. After the answer it does nothing."""
        if self._done is None:
            return
        self._done = None
        self.client.open -= 1
        if not self.client.open:
            self.client.since = time.monotonic()
        if self.timer is not None:
            self.timer.cancel()
        if self.call is not None:
            self.call.waiting.remove(self)
            self.call = None
        if self.task is not None:
            self.task.cancel()
            self.client.following.remove(self)

    def answer(self, sections: Sections, call: str = "") -> None:
        """Give the answer, once."""
        done = self._done
        if done is not None:
            self.leave()
            done(Answer(self._calls.mark(), sections, call))

    def late(self) -> None:
        """Answer that it goes on."""
        if self.call is not None:
            self.answer([(messages.dump(Pending(self.call.id)), b"")])


class Running:
    """A call that runs, or has ended and is kept."""

    __slots__ = (
        "_calls",
        "client",
        "id",
        "outcome",
        "sending",
        "sent",
        "since",
        "size",
        "stream",
        "target",
        "waiting",
        "worker",
    )

    def __init__(self, calls: Calls, call: Call, client: Client) -> None:
        self._calls = calls
        self.id = call.id
        self.target = call.target
        self.client = client
        self.worker: Worker | None = None
        self.outcome: tuple[bytes, Payload] | None = None
        self.stream = Stream() if call.stream else None
        self.waiting: list[Asking] = []
        self.size = self.sending = 0
        self.since = 0.0
        self.sent = False

    def ended(self, head: bytes, payload: Payload) -> None:
        """Take over the outcome that a worker tells."""
        self._calls.ended(self, head, payload)

    def yielded(self, item: Item, head: bytes, payload: Payload) -> None:
        """Take over an item, or raise MalformedError."""
        if self.stream is None:
            raise MalformedError("an item of what is no stream")
        self.stream.add(item, head, payload)
        for asking in self.waiting[:]:
            self.give(asking)

    def give(self, asking: Asking) -> None:
        """Answer a request with what there is; nothing happens if that is nothing."""
        if self.stream is None:
            if self.outcome is not None:
                self.sent = True
                asking.answer(_own([self.outcome], self.id), self.id)
            return
        if asking.after < self.stream.taken:
            asking.answer([failure(self.id, "forgotten")])
            return
        sections = self.stream.some()
        all_of_them = asking.after + len(sections) == self.stream.last
        alone = len(sections) == 1 and isinstance(sections[0][1], Parcel)
        if self.outcome is not None and all_of_them and not alone:
            self.sent = True
            asking.answer(_own([*sections, self.outcome], self.id), self.id)
        elif sections:
            asking.answer(_own(sections, self.id))

    def let_go(self) -> None:
        """Hold nothing any more."""
        if self.outcome is not None:
            drop(self.outcome[1])
        if self.stream is not None:
            self.stream.close()


def _own(sections: Sections, call_id: str) -> Sections:
    """Make a parcel the asker's own."""
    found = []
    for head, payload in sections:
        if isinstance(payload, Parcel):
            try:
                payload = payload.twin()
            except OSError as exc:
                failure = Failure(call_id, "refused", "OSError", f"no result: {exc.strerror}")
                return [(messages.dump(failure), b"")]
        found.append((head, payload))
    return found


_WHY: Final[dict[str, tuple[str, str]]] = {
    "unknown": ("UnknownCall", "no such call has arrived"),
    "forgotten": ("ResultUnavailable", "the call has ended, and its result is not kept any more"),
    "cancelled": ("CancelledError", "the call was cancelled"),
    "refused": ("NoSuchItem", "there is no such item, and no such stream"),
}


def failure(call_id: str, kind: FailureKind) -> tuple[bytes, Payload]:
    """Make an answer of the server's own."""
    name, text = _WHY[kind]
    return messages.dump(Failure(call_id, kind, name, text)), b""
