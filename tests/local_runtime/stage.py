"""A server's table of calls whose worker is played by the test."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

from agentix.wire import messages
from agentix.wire.messages import Call, Cancel, Failure, Item, Message, Taken, Value
from agentix.wire.protocol import MAX_INLINE
from agentix_runtime.channel import Channel
from agentix_runtime.pair import pair
from agentix_runtime.parcel import Parcel, Payload
from agentix_runtime.server.calls import Calls, Request
from agentix_runtime.server.capture import Capture
from agentix_runtime.server.journal import Journal
from agentix_runtime.server.process import Limits, Spawned
from agentix_runtime.server.supervisor import Supervisor
from local_runtime import descriptors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from agentix_runtime.server.call import Answer


def memory() -> int:
    """Count the pieces of shared memory that this process has open."""
    return sum("memfd:agentix" in one for one in descriptors())


class _Reaper:
    """Stands for the one that waits for processes: here is none."""

    def watch(self, pid: int, ended: Callable[[int], None]) -> None:
        self.ended = ended


class Stage:
    """The calls, and the worker's end of its channel."""

    def __init__(self, **settings: Any) -> None:
        near, far_end = pair()
        self.heard: asyncio.Queue[Message] = asyncio.Queue()
        self.worker = Channel(far_end, self._receive, lambda _: None)
        self.reaper = _Reaper()
        self.journal = Journal()
        self.capture = Capture(self.journal)
        self._pipes = [os.pipe(), os.pipe()]
        spawned = Spawned(1 << 30, near, self._pipes[0][0], self._pipes[1][0])
        reaper: Any = self.reaper
        self.supervisor = Supervisor(
            reaper, Limits(1, 1), spawned, self.journal, self.capture, grace=10
        )
        self.calls = Calls(self.supervisor, self.journal, **settings)

    def _receive(self, head: bytes, payload: Payload | None) -> None:
        self.heard.put_nowait(messages.load(head, (Call, Cancel, Taken)))

    def call(self, call_id: str, *, stream: bool = False, wait: int = 60_000) -> Call:
        """Make a request for a call."""
        return Call(call_id, "m::f", "values", 1 << 30, wait, stream, "", (1,))

    def ask(self, request: Request) -> asyncio.Task[Answer]:
        """Have a request answered."""
        payload = b"x" if isinstance(request, Call) else b""
        return asyncio.create_task(
            self.calls.answer(messages.dump(request), request, payload), name=str(request)
        )

    async def begin(self, call_id: str, *, stream: bool = False) -> asyncio.Task[Answer]:
        """Begin a call, and see it arrive at the worker."""
        task = self.ask(self.call(call_id, stream=stream))
        async with asyncio.timeout(10):
            found = await self.heard.get()
        assert isinstance(found, Call)
        assert found.id == call_id
        return task

    def say(self, message: Message, payload: Payload = b"") -> None:
        """Send as the worker, and have it arrive in this turn of the loop."""
        self.raw(messages.dump(message), payload)

    def raw(self, head: bytes, payload: Payload = b"") -> None:
        """Send any frame as the worker."""
        self.worker.send(head, payload)
        if (worker := self.supervisor._worker) is not None:
            worker._channel.drain()

    def value(self, call_id: str, size: int = 1) -> None:
        """Send a result of so many bytes."""
        self.say(Value(call_id, "values", "", (size,)), packed(size))

    def item(self, call_id: str, number: int, size: int = 1) -> None:
        """Send an item of so many bytes."""
        self.say(Item(call_id, number, "values", "", (size,)), packed(size))

    def gave_up(self) -> bool:
        """Whether the supervisor has given the worker up."""
        return self.supervisor._worker is None

    def end(self, code: int = 0) -> None:
        """Have the worker's process end."""
        self.reaper.ended(code)

    def close(self) -> None:
        """Let go of everything."""
        self.worker.close()
        self.end()
        self.calls.close()
        self.capture.close()
        for _, writing in self._pipes:
            os.close(writing)


@contextlib.asynccontextmanager
async def stage(**settings: Any) -> AsyncIterator[Stage]:
    """Have a stage; in the end it must hold no memory."""
    made = Stage(**settings)
    try:
        yield made
    finally:
        made.close()


def packed(size: int) -> Payload:
    """Make a payload, as a parcel if it is large."""
    return bytes(size) if size <= MAX_INLINE else Parcel.of([bytes(size)])


def told(answer: Answer) -> list[Message]:
    """Read the messages of an answer, and let go of its payloads."""
    found: list[Message] = []
    for head, payload in answer.sections:
        found.append(messages.load(head, (Value, Failure, Item, messages.Pending, messages.Noted)))
        if isinstance(payload, Parcel):
            payload.close()
    return found
