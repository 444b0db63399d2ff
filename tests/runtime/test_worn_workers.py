"""A call that ignores its cancellation costs its worker the next calls, and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from local_runtime import LocalRuntime, appears
from local_runtime.by_hand import Raw, raw

from agentix.wire import records
from agentix.wire.messages import Await, Cancel, Follow, Pending, Records

if TYPE_CHECKING:
    from collections.abc import Iterator

GRACE = 0.5
STUCK = pytest.mark.parametrize("function", ["auntil", "block_until"])


@pytest.fixture
def strict() -> Iterator[LocalRuntime]:
    """Give a runtime that soon replaces a worker."""
    with LocalRuntime(settings=f"grace={GRACE}") as runtime:
        yield runtime


async def another(one: Raw, pid: int) -> int:
    """Wait until calls get another worker; tell its process."""
    async with asyncio.timeout(20):
        while (now := await one.worker()) == pid:
            await asyncio.sleep(0.02)
    return now


async def ended(pid: int) -> None:
    """Wait for the end of a process."""
    async with asyncio.timeout(20):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.02)


async def said(one: Raw) -> str:
    """Read the journal."""
    journal = (await one.ask(Follow(one.name, "", 0, 0))).sections[0][0]
    assert isinstance(journal, Records)
    answer = await one.ask(Follow(one.name, journal.journal, 0, 0))
    ((message, payload),) = answer.sections
    assert isinstance(message, Records)
    return "\n".join(str(entry) for entry in records.load_all(payload, message.count))


@STUCK
async def test_other_calls_in_a_worn_worker_return_and_then_it_is_ended(
    strict: LocalRuntime, tmp_path: Path, function: str
) -> None:
    async with raw(strict) as one, raw(strict, one.name) as two, raw(strict) as three:
        old = (await three.call("process")).value()
        stuck = await one.begin(function, str(tmp_path / "never"))
        other = await two.begin("until", str(tmp_path / "go"), "other", call_id=f"{one.name}-o")
        await appears(tmp_path / "go-waited-for")
        await appears(tmp_path / "never-waited-for")
        await three.ask(Cancel(stuck))
        assert (await one.receive()).failure().kind == "cancelled"
        new = await another(three, old)
        assert Path(f"/proc/{old}").exists()
        assert (await three.ask(Await(other, 0))).message == Pending(other)
        (tmp_path / "go").touch()
        assert (await two.receive()).value() == "other"
        await ended(old)
        assert (await three.call("process")).value() == new
        text = await said(three)
        assert f"far::{function} goes on 0.5 s after it was cancelled" in text
        assert f"process {old}, gets no new calls, and is ended after the other call" in text


@STUCK
async def test_a_worn_worker_without_other_calls_is_ended_at_once(
    strict: LocalRuntime, tmp_path: Path, function: str
) -> None:
    async with raw(strict) as one, raw(strict) as two:
        old = (await two.call("process")).value()
        stuck = await one.begin(function, str(tmp_path / "never"))
        await appears(tmp_path / "never-waited-for")
        await two.ask(Cancel(stuck))
        await ended(old)
        assert (await two.call("process")).value() not in (0, old)
        assert f"process {old}, is ended: no other call is in it" in await said(two)


async def test_a_stopped_worker_is_replaced_and_goes_on_when_it_is_let(
    strict: LocalRuntime, tmp_path: Path
) -> None:
    async with raw(strict) as one, raw(strict, one.name) as two, raw(strict) as three:
        old = (await three.call("process")).value()
        other = await two.begin("until", str(tmp_path / "go"), "other", call_id=f"{one.name}-o")
        await appears(tmp_path / "go-waited-for")
        os.kill(old, signal.SIGSTOP)
        stopped = await one.begin("anoop", 1)
        await three.ask(Await(stopped, 0))
        await three.ask(Cancel(stopped))
        assert (await one.receive()).failure().kind == "cancelled"
        await another(three, old)
        (tmp_path / "go").touch()
        assert (await three.ask(Await(other, 200))).message == Pending(other)
        os.kill(old, signal.SIGCONT)
        assert (await two.receive()).value() == "other"


async def test_a_call_that_ends_within_its_grace_costs_nothing(
    strict: LocalRuntime, tmp_path: Path
) -> None:
    async with raw(strict) as one, raw(strict) as two:
        old = (await two.call("process")).value()
        slow = await one.begin("block_until", str(tmp_path / "soon"))
        await appears(tmp_path / "soon-waited-for")
        await two.ask(Cancel(slow))
        await one.receive()
        (tmp_path / "soon").touch()
        await asyncio.sleep(2 * GRACE)
        assert (await two.call("process")).value() == old


@STUCK
async def test_a_worn_worker_that_dies_fails_the_calls_that_are_in_it(
    strict: LocalRuntime, tmp_path: Path, function: str
) -> None:
    async with raw(strict) as one, raw(strict, one.name) as two, raw(strict) as three:
        old = (await three.call("process")).value()
        stuck = await one.begin(function, str(tmp_path / "never"))
        await two.begin("until", str(tmp_path / "go"), call_id=f"{one.name}-o")
        await appears(tmp_path / "go-waited-for")
        await appears(tmp_path / "never-waited-for")
        await three.ask(Cancel(stuck))
        new = await another(three, old)
        os.kill(old, signal.SIGKILL)
        failure = (await two.receive()).failure()
        assert (failure.kind, failure.returncode) == ("exited", -signal.SIGKILL)
        assert (await three.call("process")).value() == new
