"""A request can be sent again, over any connection, and is answered as if it had come once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from local_runtime import LocalRuntime, descriptors, far
from local_runtime.by_hand import Raw, connect, raw

from agentix.wire import messages
from agentix.wire.frames import body_prefix
from agentix.wire.messages import Await, Call, Cancel, Leave, Next, Noted, Pending
from agentix.wire.protocol import CONTENT_TYPE

if TYPE_CHECKING:
    from pathlib import Path


async def ended(one: Raw, call_id: str) -> None:
    """Wait until a call has ended, without taking its answer."""
    async with asyncio.timeout(20):
        while isinstance((await one.ask(Await(call_id, 0))).message, Pending):
            await asyncio.sleep(0.01)


async def test_the_same_call_runs_once_and_each_request_is_answered(
    shared: LocalRuntime, tmp_path: Path
) -> None:
    async with raw(shared) as one, raw(shared) as two, raw(shared) as three:
        go = tmp_path / "go"
        call_id = await one.begin("until", str(go), 5)
        await two.begin("until", str(go), 5, call_id=call_id)
        assert isinstance((await three.ask(Await(call_id, 50))).message, Pending)
        go.touch()
        assert (await one.receive()).value() == 5
        assert (await two.receive()).value() == 5
        assert (await three.ask(Await(call_id, 0))).value() == 5

        before = (await three.call("count")).value()
        call_id = one.id()
        for connection in (one, two, one):
            again = await connection.call("count", call_id=call_id)
            assert getattr(again.message, "kind", "forgotten") == "forgotten"
        assert (await three.call("count")).value() == before + 2


async def test_a_call_goes_on_when_its_connection_breaks_and_its_answer_is_fetched_by_another(
    shared: LocalRuntime, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    one = await connect(shared)
    call_id = await one.begin("until", str(go), "found")
    async with raw(shared, one.name) as two:
        async with asyncio.timeout(10):
            while not isinstance((await two.ask(Await(call_id, 0))).message, Pending):
                pass
        await one.close()
        await two.send(Await(call_id, 60_000))
        go.touch()
        assert (await two.receive()).value() == "found"


@pytest.mark.parametrize("size", [10, 1 << 20])
async def test_an_answer_is_kept_until_it_is_known_to_have_arrived(
    shared: LocalRuntime, size: int
) -> None:
    async with raw(shared) as one, raw(shared) as two, raw(shared) as three:
        call_id = await one.begin("blob", size)
        first = await one.receive()
        together = await asyncio.gather(*(c.ask(Await(call_id, 0)) for c in (two, three)))
        assert all(answer == first for answer in together)
        await one.call("noop")  # says that the answer before it has arrived
        failure = (await two.ask(Await(call_id, 0))).failure()
        assert (failure.kind, failure.type) == ("forgotten", "ResultUnavailable")
        assert not any("memfd" in one for one in descriptors(shared.process.pid))


async def test_a_call_of_which_nothing_has_arrived_is_unknown(shared: LocalRuntime) -> None:
    async with raw(shared) as one:
        for request in (Await("somebody-1", 60_000), Next("somebody-1", 0, 60_000)):
            assert (await one.ask(request)).failure().kind == "unknown"


async def test_a_call_cut_off_in_its_arguments_never_arrived(shared: LocalRuntime) -> None:
    for size in (10, 1 << 20):
        call = Call("cut-1", "local_runtime.far::count", "values", 1, 0, False, "", (size,))
        start = body_prefix(messages.dump(call))
        _, writer = await asyncio.open_unix_connection(str(shared.socket))
        head = (
            f"POST /rpc HTTP/1.1\r\nAuthorization: Bearer {shared.token}\r\n"
            f"Content-Type: {CONTENT_TYPE}\r\nContent-Length: {len(start) + size}\r\n\r\n"
        )
        writer.write(head.encode() + start + bytes(size - 1))
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        async with raw(shared) as one:
            assert (await one.ask(Await("cut-1", 0))).failure().kind == "unknown"


async def test_a_wait_ends_with_pending_and_the_call_goes_on(
    shared: LocalRuntime, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with raw(shared) as one:
        call_id = await one.begin("block_until", str(go), bytes(1 << 20), wait=0)
        assert (await one.receive()).message == Pending(call_id)
        assert (await one.ask(Await(call_id, 20))).message == Pending(call_id)
        go.touch()
        answer = await one.ask(Await(call_id, 60_000))
        assert len(answer.sections[0][1]) > 1 << 20


async def test_a_cancelled_call_is_cancelled_at_once_for_everybody(
    shared: LocalRuntime, tmp_path: Path
) -> None:
    async with raw(shared) as one, raw(shared) as two:
        call_id = await one.begin("block_until", str(tmp_path / "go"))
        await ended_or_running(two, call_id)
        assert isinstance((await two.ask(Cancel(call_id))).message, Noted)
        assert (await one.receive()).failure().kind == "cancelled"
        for request in (Await(call_id, 60_000), Next(call_id, 0, 60_000)):
            assert (await two.ask(request)).failure().kind == "cancelled"
        assert isinstance((await two.ask(Cancel(call_id))).message, Noted)
        (tmp_path / "go").touch()
        assert (await one.call("noop", 1)).value() == 1
        assert (await two.ask(Await(call_id, 0))).failure().kind == "cancelled"


async def ended_or_running(one: Raw, call_id: str) -> None:
    """Wait until a call has arrived."""
    async with asyncio.timeout(20):
        while getattr((await one.ask(Await(call_id, 0))).message, "kind", "") == "unknown":
            await asyncio.sleep(0)


async def test_a_cancel_that_overtakes_its_call_keeps_it_from_running(
    shared: LocalRuntime,
) -> None:
    async with raw(shared) as one:
        before = (await one.call("count")).value()
        call_id = one.id()
        await one.ask(Cancel(call_id))
        assert (await one.call("count", call_id=call_id)).failure().kind == "cancelled"
        assert (await one.call("count")).value() == before + 1


async def test_leaving_ends_a_clients_calls_and_what_comes_late_does_not_run(
    shared: LocalRuntime,
) -> None:
    async with raw(shared) as one, raw(shared, one.name) as two, raw(shared) as other:
        running = await one.begin("wait_and_tell", "left")
        while "left began" not in (await other.call("told")).value():
            await asyncio.sleep(0)
        kept = await two.begin("noop", bytes(1 << 20), call_id=f"{one.name}-kept")
        await two.receive()
        assert isinstance((await other.ask(Leave(one.name))).message, Noted)
        assert (await one.receive()).failure().kind == "cancelled"
        assert (await other.ask(Await(running, 0))).failure().kind == "cancelled"
        assert (await other.ask(Await(kept, 0))).failure().kind == "forgotten"
        async with asyncio.timeout(10):
            while "left cancelled" not in (await other.call("told")).value():
                await asyncio.sleep(0.01)
        before = (await other.call("count")).value()
        late = await two.call("count", call_id=f"{one.name}-late")
        assert late.failure().kind == "cancelled"
        assert (await other.call("count")).value() == before + 1


async def test_requests_in_one_piece_are_answered_in_their_order(shared: LocalRuntime) -> None:
    async with raw(shared) as one:
        ids = [await one.begin("anoop", n) for n in range(50)]
        assert [(await one.receive()).value() for _ in ids] == list(range(50))


async def test_many_answers_at_once_come_back_whole(shared: LocalRuntime) -> None:
    async def caller(n: int) -> bool:
        async with raw(shared) as one:
            return bool((await one.call("noop", bytes([n]) * 1_000_000)).sections)

    assert all(await asyncio.gather(*(caller(n) for n in range(50))))
    assert far.noop(1) == 1
