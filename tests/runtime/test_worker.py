"""Each call that reaches the worker is answered once, whatever happens to it on the way."""

from __future__ import annotations

import asyncio

import pytest
from local_runtime import far, lazy
from local_runtime.worker import working

from agentix.wire.messages import Value


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
        server.call("lazy::there", 0, call_id="import")
        await server.answer("import")
        before = far.counter
        # All in one turn, so that the worker finds them in one piece.
        server.call("far::count", call_id="first")
        server.call(target, call_id="bad")
        server.call("far::count", call_id="last")
        assert (await server.failure("bad")).type == kind
        assert isinstance(await server.answer("first"), Value)
        assert isinstance(await server.answer("last"), Value)
        assert far.counter == before + 2
        server.call("lazy::there", 1, call_id="after")
        assert isinstance(await server.answer("after"), Value)


async def test_a_function_that_wraps_itself_is_called_all_the_same() -> None:
    async with working() as (server, _):
        assert await server.value(server.call("lazy::endless")) is None


async def test_looking_up_what_a_module_makes_on_demand_does_not_hold_up_the_loop() -> None:
    async with working() as (server, worker):
        server.call("lazy::there", 0, call_id="import")
        await server.answer("import")
        lazy.asked.clear()
        assert worker._targets.loaded("local_runtime.lazy::later") is None
        assert lazy.asked == []


async def test_a_result_that_cannot_even_say_why_it_cannot_be_sent_is_answered() -> None:
    async with working() as (server, _):
        server.call("lazy::unpicklable", call_id="mute", form="pickle")
        assert (await server.failure("mute")).type == "UnencodableError"


async def test_a_call_cancelled_in_one_piece_with_its_beginning_is_answered() -> None:
    async with working() as (server, _):
        await server.answer(server.call("far::anoop"))
        for target in ("far::asleep", "hard::spin"):
            call = server.call(target, 30.0)
            server.cancel(call)
            assert (await server.failure(call)).kind == "cancelled"


async def test_a_function_that_refuses_to_be_cancelled_ends_with_its_value() -> None:
    async with working() as (server, _):
        server.call("far::anoop", call_id="import")
        await server.answer("import")
        server.call("far::ignore_cancel", 30.0, call_id="refusing")
        server.call("far::anoop", call_id="behind")
        await server.answer("behind")  # by now the other has begun to wait
        server.cancel("refusing")
        assert isinstance(await server.answer("refusing"), Value)


async def test_a_call_cancelled_while_its_answer_waits_to_be_sent_is_answered() -> None:
    count = 100
    async with working() as (server, worker):
        server.call("far::ablob", 1, call_id="import")
        await server.answer("import")
        # Nobody reads: the answers, 20 MB, fill the socket and then the worker's memory.
        loop = asyncio.get_running_loop()
        loop.remove_reader(server.channel._sock)
        for n in range(count):
            server.call("far::ablob", 200_000, call_id=str(n))
        async with asyncio.timeout(20):
            while len(worker._running) + worker.channel._outbox.size < 10_000_000:
                await asyncio.sleep(0)
        server.call("far::ablob", 200_000, call_id="late")
        for _ in range(20):
            await asyncio.sleep(0)
        server.cancel("late")
        for _ in range(20):
            await asyncio.sleep(0)
        loop.add_reader(server.channel._sock, server.channel._readable)
        for call_id in [*map(str, range(count)), "late"]:
            await server.answer(call_id)
