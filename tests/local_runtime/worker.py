"""A worker without a server: in this process or in one of its own, driven over its raw channel."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

from agentix.wire import arguments, messages, records
from agentix.wire.frames import offsets, pieces
from agentix.wire.messages import (
    Call,
    Cancel,
    Failure,
    Item,
    Ready,
    Record,
    Reply,
    Signal,
    Taken,
    Value,
)
from agentix.wire.protocol import MAX_INLINE
from agentix.wire.values.decode import decode
from agentix_runtime.channel import Channel
from agentix_runtime.pair import WORKER_FD, pair
from agentix_runtime.parcel import Parcel, Payload, drop
from agentix_runtime.worker.work import Worker
from local_runtime import python

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from agentix.wire.fields import Form
    from agentix.wire.records import Entry

_SAID = (Ready, Value, Failure, Item, Record, Signal, Reply)


class Server:
    """The other end of a worker's channel, and all that came to it, in order."""

    def __init__(self) -> None:
        self.channel: Channel
        self.answers: dict[str, list[Value | Failure]] = {}
        self.values: dict[str, Any] = {}
        self.items: dict[str, list[Any]] = {}
        self.records: list[Entry] = []
        self.order: list[str] = []
        """The kinds of messages, each behind the id of its call if it is of one."""
        self.lost = asyncio.Event()
        self._news = asyncio.Event()
        self._ids = itertools.count(1)

    def receive(self, head: bytes, payload: Payload | None) -> None:
        """Note what the worker says."""
        message = messages.load(head, _SAID)
        if isinstance(message, Value | Item) and payload is not None:
            self._keep(message, payload)
        elif isinstance(message, Record) and payload is not None:
            for entry in records.load_all(records.prefixed(bytes(_memory(payload))), 1):
                assert not isinstance(entry, Exception), entry
                self.records.append(entry)
        else:
            drop(payload)
        if isinstance(message, Value | Failure):
            self.answers.setdefault(message.id, []).append(message)
        name = type(message).__name__
        self.order.append(f"{message.id} {name}" if hasattr(message, "id") else name)
        self._news.set()

    def _keep(self, message: Value | Item, payload: Payload) -> None:
        memory = _memory(payload)
        if message.form != "values" or not len(memory):
            return
        parts = [
            memory[start : start + length]
            for start, length in zip(offsets(message.segments), message.segments, strict=True)
        ]
        value = decode(parts[0], parts[1:], dict)
        if isinstance(message, Value):
            self.values[message.id] = value
        else:
            found = self.items.setdefault(message.id, [])
            assert message.number == len(found) + 1
            found.append(value)

    def call(
        self,
        target: str,
        *args: Any,
        form: Form = "values",
        stream: bool = False,
        carried: dict[str, Any] | None = None,
        minor: str | None = None,
        limit: int = 1 << 30,
        call_id: str = "",
    ) -> str:
        """Call a function; give the call's id."""
        call_id = call_id or f"c-{next(self._ids)}"
        made = arguments.dump(args, {}, carried=carried)
        minor = made.minor if minor is None else minor
        call = Call(
            call_id, f"local_runtime.{target}", form, limit, 0, stream, minor, made.segments
        )
        parts = list(pieces(made.stream, made.buffers))
        size = sum(map(len, parts))
        payload = b"".join(parts) if size <= MAX_INLINE else Parcel.of(parts)
        self.channel.send(messages.dump(call), payload)
        return call_id

    def stream(self, target: str, *args: Any, **knobs: Any) -> str:
        """Call a generator function."""
        return self.call(target, *args, stream=True, **knobs)

    def cancel(self, call_id: str) -> None:
        """Cancel a call."""
        self.channel.send(messages.dump(Cancel(call_id)))

    def taken(self, call_id: str, number: int) -> None:
        """Take the items of a stream up to this number."""
        self.channel.send(messages.dump(Taken(call_id, number)))

    async def until(self, there: Callable[[], Any]) -> None:
        """Wait until something has come."""
        async with asyncio.timeout(30):
            while not there():
                self._news.clear()
                await self._news.wait()

    async def answer(self, call_id: str) -> Value | Failure:
        """Wait for a call's answer."""
        await self.until(lambda: call_id in self.answers)
        return self.answers[call_id][0]

    async def value(self, call_id: str) -> Any:
        """Wait for a call's value."""
        found = await self.answer(call_id)
        assert isinstance(found, Value), found
        return self.values.get(call_id)

    async def failure(self, call_id: str) -> Failure:
        """Wait for a call's failure."""
        found = await self.answer(call_id)
        assert isinstance(found, Failure)
        return found

    async def made(self, call_id: str, count: int) -> list[Any]:
        """Wait for the first items of a stream."""
        await self.until(lambda: len(self.items.get(call_id, [])) >= count)
        return self.items[call_id]

    async def all_of(self, call_id: str) -> list[Any]:
        """Take all items of a stream, whatever comes behind them."""
        while call_id not in self.answers:
            count = len(self.items.get(call_id, []))
            self.taken(call_id, count)

            def news(count: int = count) -> bool:
                return call_id in self.answers or len(self.items.get(call_id, [])) > count

            await self.until(news)
        return self.items.get(call_id, [])


def _memory(payload: Payload) -> memoryview:
    if not isinstance(payload, Parcel):
        return memoryview(payload)
    memory = payload.opened()
    payload.close()
    return memory


async def becomes(true: Callable[[], Any], within: float = 20) -> None:
    """Wait until something that another thread does is done."""
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def working(*, idle: bool = True) -> AsyncIterator[tuple[Server, Worker]]:
    """Run a worker in this process; in the end it must have forgotten all its calls, if idle."""
    server, (near, far_end) = Server(), pair()
    server.channel = Channel(near, server.receive, lambda _: server.lost.set())
    worker = Worker(far_end)
    try:
        yield server, worker
        assert not server.lost.is_set()
        assert all(len(answers) == 1 for answers in server.answers.values())
        assert not (idle and worker._running)
    finally:
        server.channel.close()
        await asyncio.wait_for(worker.ended.wait(), 10)
        assert worker._ending is not None
        await worker._ending


class Process:
    """A worker's process, and what it has written."""

    def __init__(self, started: subprocess.Popen[bytes], output: int) -> None:
        self.started = started
        self.pid = started.pid
        self._output = output

    def said(self) -> str:
        """Give all that it and its children have written."""
        size = os.fstat(self._output).st_size
        return os.pread(self._output, size, 0).decode(errors="replace")

    def says(self, text: str) -> bool:
        """Tell whether it has written a text."""
        return text in self.said()


@contextlib.asynccontextmanager
async def spawned() -> AsyncIterator[tuple[Server, Process]]:
    """Run a worker in a process of its own, which must end when its channel does."""
    server, (near, theirs) = Server(), pair()
    output = os.memfd_create("output")
    started = subprocess.Popen(
        [python(), "-I", "-m", "agentix_runtime.worker", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        preexec_fn=lambda: os.dup2(theirs.fileno(), WORKER_FD),
        pass_fds=(WORKER_FD, theirs.fileno()),
        start_new_session=True,
    )
    theirs.close()
    process = Process(started, output)
    server.channel = Channel(near, server.receive, lambda _: server.lost.set())
    try:
        yield server, process
        assert all(len(answers) == 1 for answers in server.answers.values())
    finally:
        server.channel.close()
        try:
            await becomes(lambda: started.poll() is not None, 10)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
            os.close(output)
