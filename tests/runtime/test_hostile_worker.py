"""A worker is the user's code, and may send anything: that costs its own calls, and no more."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from local_runtime.by_hand import raw
from local_runtime.stage import Stage, memory, packed, stage, told

from agentix.wire import messages
from agentix.wire.frames import FRAME
from agentix.wire.messages import Await, Call, Failure, Message, Noted, Ready, Record, Signal, Value
from agentix.wire.protocol import MAX_INLINE, WINDOW, WINDOW_BYTES
from agentix_runtime.parcel import Parcel

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_runtime import LocalRuntime

BIG = MAX_INLINE + 1


def _value(size: int, *, claimed: int) -> Callable[[Stage], None]:
    return lambda it: it.say(Value("a-1", "values", "", (claimed,)), packed(size))


def _failure(kind: Any, size: int = 0) -> Callable[[Stage], None]:
    return lambda it: it.say(Failure("a-1", kind, "E", "text"), packed(size))


def _open_memory(it: Stage) -> None:
    parcel = Parcel.empty()
    parcel.write(bytes(BIG))
    it.say(Value("a-1", "values", "", (BIG,)), parcel)


def _pipe(it: Stage) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    it.say(Value("a-1", "values", "", (BIG,)), Parcel(reading, BIG))


def _twice(it: Stage) -> None:
    it.item("s-1", 1, BIG)
    it.item("s-1", 1, BIG)


HOSTILE: dict[str, Callable[[Stage], None]] = {
    "nonsense": lambda it: it.raw(b"nonsense"),
    "nonsense with memory": lambda it: it.raw(b"nonsense", packed(BIG)),
    "an empty head": lambda it: it.raw(b""),
    "a request": lambda it: it.say(Await("a-1", 0)),
    "a call": lambda it: it.say(Call("a-2", "m::f", "values", 1, 0, False, "", (0,))),
    "an answer of the server's": lambda it: it.say(Noted()),
    "a result longer than it says": _value(9, claimed=8),
    "a result shorter than it says": _value(8, claimed=9),
    "a large result longer than it says": _value(BIG + 1, claimed=BIG),
    "a small result that says it is huge": _value(1, claimed=1 << 25),
    "a failure with a payload": _failure("raised", 1),
    "a failure with memory": _failure("raised", BIG),
    "that a call is unknown": _failure("unknown"),
    "that a call is forgotten": _failure("forgotten"),
    "that it has exited": _failure("exited"),
    "memory that can change": _open_memory,
    "what is no memory": _pipe,
    "an item of no stream": lambda it: it.item("a-1", 1),
    "an item of no stream, in memory": lambda it: it.item("a-1", 1, BIG),
    "a first item that is none": lambda it: it.item("s-1", 2),
    "an item twice": _twice,
    "readiness with a payload": lambda it: it.say(Ready(), b"x"),
    "a record that lies": lambda it: it.say(Record("", (2,)), b"x"),
    "a signal that lies": lambda it: it.say(Signal("/x", "e", 0, (2,)), packed(BIG)),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_worker_out_of_order_is_given_up_and_leaves_nothing(what: str) -> None:
    async with stage() as it:
        plain, stream = await it.begin("a-1"), await it.begin("s-1", stream=True)
        told(await stream)
        HOSTILE[what](it)
        assert it.gave_up()
        it.end(-9)
        (failure,) = told(await plain)
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.returncode) == ("exited", -9)
    assert memory() == 0


async def test_a_stream_with_more_items_than_may_be_made_is_out_of_order() -> None:
    async with stage() as it:
        told(await (await it.begin("s-1", stream=True)))
        for number in range(1, WINDOW + 1):
            it.item("s-1", number)
        assert not it.gave_up()
        it.item("s-1", WINDOW + 1)
        assert it.gave_up()


async def test_a_stream_with_more_bytes_than_may_be_made_is_out_of_order() -> None:
    async with stage() as it:
        told(await (await it.begin("s-1", stream=True)))
        it.item("s-1", 1, WINDOW_BYTES)
        assert not it.gave_up()
        it.item("s-1", 2, BIG)
        assert it.gave_up()
    assert memory() == 0


async def test_a_second_outcome_and_one_of_no_call_are_dropped() -> None:
    async with stage() as it:
        task = await it.begin("a-1")
        it.value("a-1", 5)
        it.value("a-1", BIG)
        it.value("never-1", BIG)
        it.item("never-1", 1, BIG)
        (value,) = told(await task)
        assert isinstance(value, Value)
        assert value.segments == (5,)
        assert not it.gave_up()
        assert memory() == 0


_FLOOD = """
import socket, sys
other = socket.socket(fileno=int(sys.argv[1]))
frames = bytes.fromhex(sys.argv[2]) * 5000
print("ready", flush=True)
try:
    while True:
        other.sendall(frames)
except BrokenPipeError:
    pass
"""


@pytest.mark.timeout(60)
async def test_a_child_of_a_dead_worker_that_writes_without_end_holds_nobody_up() -> None:
    head = messages.dump(Record("", (0,)))
    async with stage() as it:
        other = it.worker._sock.dup()
        other.setblocking(True)
        frame = (FRAME.pack(len(head), 0, 0) + head).hex()
        with subprocess.Popen(
            [sys.executable, "-c", _FLOOD, str(other.fileno()), frame],
            pass_fds=[other.fileno()],
            stdout=subprocess.PIPE,
        ) as child:
            other.close()
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            it.end()
        assert child.returncode == 0


async def test_a_long_head_ends_the_channel_before_it_has_arrived() -> None:
    async with stage() as it:
        os.write(it.worker._sock.fileno(), FRAME.pack(1 << 31, 0, 0))
        worker = it.supervisor._worker
        assert worker is not None
        worker._channel.drain()
        assert it.gave_up()


async def test_many_small_frames_are_taken_in_many_turns_of_the_loop() -> None:
    head = messages.dump(Record("", (0,)))
    frame = FRAME.pack(len(head), 0, 0) + head
    async with stage() as it:
        sent = it.worker._sock.send(frame * 2000)
        assert sent == len(frame) * 2000
        seen = []
        while it.journal.last < 2000:
            await asyncio.sleep(0)
            seen.append(it.journal.last)
        steps = [now - before for before, now in zip([0, *seen], seen, strict=False)]
        assert max(steps) <= 2 * 64  # one share as it arrives, another as its own turn


@pytest.mark.parametrize("kind", ["ready", "value", "record"])
async def test_a_worker_that_floods_holds_nobody_up(fresh: LocalRuntime, kind: str) -> None:
    floods: dict[str, Message] = {
        "ready": Ready(),
        "value": Value("x-1", "values", "", (0,)),
        "record": Record("", (0,)),
    }
    head = messages.dump(floods[kind])
    async with raw(fresh) as one, raw(fresh) as two:
        await one.begin("flood", FRAME.pack(len(head), 0, 0) + head, 2.0)
        took = []
        end = time.monotonic() + 2
        while time.monotonic() < end:
            start = time.perf_counter()
            await two.worker()
            took.append(time.perf_counter() - start)
            await asyncio.sleep(0.01)
        assert (await one.receive()).value() > 1000
        assert sorted(took)[len(took) // 2] < 0.2
        assert _memory(fresh) < 120 << 20
        assert (await two.call("noop", 1)).value() == 1


def _memory(runtime: LocalRuntime) -> int:
    return int(Path(f"/proc/{runtime.process.pid}/statm").read_text().split()[1]) * 4096
