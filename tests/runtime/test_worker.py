"""Each call that reaches the worker is answered once, whatever happens to it on the way."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from local_runtime import far, lazy

from agentix.wire import arguments, messages
from agentix.wire.frames import pieces
from agentix.wire.messages import Call, Cancel, Failure, Form, Ready, Value
from agentix_runtime.channel import Channel, Payload, pair
from agentix_runtime.parcel import drop
from agentix_runtime.worker.work import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Server:
    """The other end of a worker's channel, and all answers that came to it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.answers: dict[str, list[Value | Failure]] = {}
        self._news = asyncio.Event()

    def receive(self, head: bytes, payload: Payload | None) -> None:
        message = messages.load(head, (Ready, Value, Failure))
        drop(payload)
        if not isinstance(message, Ready):
            self.answers.setdefault(message.id, []).append(message)
            self._news.set()

    def call(self, call_id: str, target: str, *args: Any, form: Form = "values") -> None:
        pickled = arguments.dump(args, {})
        call = Call(
            call_id, f"local_runtime.{target}", form, 1 << 30, 0, False, "", pickled.segments
        )
        payload = b"".join(pieces(pickled.stream, pickled.buffers))
        self.channel.send(messages.dump(call), payload)

    def cancel(self, call_id: str) -> None:
        self.channel.send(messages.dump(Cancel(call_id)))

    async def answer(self, call_id: str) -> Value | Failure:
        async with asyncio.timeout(20):
            while call_id not in self.answers:
                self._news.clear()
                await self._news.wait()
        return self.answers[call_id][0]

    async def failure(self, call_id: str) -> Failure:
        found = await self.answer(call_id)
        assert isinstance(found, Failure)
        return found


@contextlib.asynccontextmanager
async def working() -> AsyncIterator[tuple[Server, Worker]]:
    """Run a worker in this process; in the end it must have forgotten all its calls."""
    near, far_end = pair()
    lost = asyncio.Event()
    server = Server(None)  # type: ignore[arg-type]
    server.channel = Channel(near, server.receive, lambda _: lost.set())
    worker = Worker(far_end)
    try:
        yield server, worker
        assert not lost.is_set()
        assert all(len(answers) == 1 for answers in server.answers.values())
        assert not worker._running
    finally:
        server.channel.close()
        await asyncio.wait_for(worker.ended.wait(), 10)
        assert worker._ending is not None
        await worker._ending


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("lazy::missing", "ImportError"),
        ("lazy::Group.missing", "ImportError"),
        ("lazy::Group.leaving", "SystemExit"),
        ("lazy::asked", "TargetError"),
    ],
)
async def test_a_function_that_cannot_be_looked_up_fails_its_own_call_only(
    target: str, kind: str
) -> None:
    async with working() as (server, _):
        server.call("import", "lazy::there", 0)
        await server.answer("import")
        before = far.counter
        # All in one turn, so that the worker finds them in one piece.
        server.call("first", "far::count")
        server.call("bad", target)
        server.call("last", "far::count")
        assert (await server.failure("bad")).type == kind
        assert isinstance(await server.answer("first"), Value)
        assert isinstance(await server.answer("last"), Value)
        assert far.counter == before + 2
        server.call("after", "lazy::there", 1)
        assert isinstance(await server.answer("after"), Value)


async def test_looking_up_what_a_module_makes_on_demand_does_not_hold_up_the_loop() -> None:
    async with working() as (server, worker):
        server.call("import", "lazy::there", 0)
        await server.answer("import")
        lazy.asked.clear()
        assert worker._targets.loaded("local_runtime.lazy::later") is None
        assert lazy.asked == []


async def test_a_result_that_cannot_even_say_why_it_cannot_be_sent_is_answered() -> None:
    async with working() as (server, _):
        server.call("mute", "lazy::unpicklable", form="pickle")
        assert (await server.failure("mute")).type == "UnencodableError"


async def test_a_call_cancelled_before_it_began_is_answered() -> None:
    async with working() as (server, _):
        server.call("import", "far::anoop")
        await server.answer("import")
        server.call("unborn", "far::anoop")
        server.cancel("unborn")  # in the same piece, and so in the same turn
        assert (await server.failure("unborn")).kind == "cancelled"


async def test_a_function_that_refuses_to_be_cancelled_ends_with_its_value() -> None:
    async with working() as (server, _):
        server.call("import", "far::anoop")
        await server.answer("import")
        server.call("refusing", "far::ignore_cancel", 30.0)
        server.call("behind", "far::anoop")
        await server.answer("behind")  # by now the other has begun to wait
        server.cancel("refusing")
        assert isinstance(await server.answer("refusing"), Value)


async def test_a_call_cancelled_while_its_answer_waits_to_be_sent_is_answered() -> None:
    count = 100
    async with working() as (server, worker):
        server.call("import", "far::ablob", 1)
        await server.answer("import")
        # Nobody reads: the answers, 20 MB, fill the socket and then the worker's memory.
        loop = asyncio.get_running_loop()
        loop.remove_reader(server.channel._sock)
        for n in range(count):
            server.call(str(n), "far::ablob", 200_000)
        async with asyncio.timeout(20):
            while len(worker._running) + worker.channel._queued < 10_000_000:
                await asyncio.sleep(0)
        server.call("late", "far::ablob", 200_000)
        for _ in range(20):
            await asyncio.sleep(0)
        server.cancel("late")
        for _ in range(20):
            await asyncio.sleep(0)
        loop.add_reader(server.channel._sock, server.channel._readable)
        for call_id in [*map(str, range(count)), "late"]:
            await server.answer(call_id)
