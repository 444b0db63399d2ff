"""The server lets go of every result and of every descriptor, whoever goes away and when."""

from __future__ import annotations

import asyncio
import os
import resource
import signal

import pytest
from local_runtime import LocalRuntime, descriptors
from local_runtime.by_hand import raw
from local_runtime.stage import memory, stage, told
from patience import eventually_async

from agentix.wire import arguments, messages
from agentix.wire.frames import body_prefix
from agentix.wire.messages import Await, Call, Cancel, Failure, Value
from agentix.wire.protocol import CONTENT_TYPE, MAX_INLINE

BIG = MAX_INLINE + 1
_OF_A_WORKER = 3
"""Descriptors that the server has of each worker: a channel and two pipes."""


async def test_a_result_that_comes_with_the_end_of_its_request_is_let_go() -> None:
    async with stage() as it:
        for n in range(20):
            call_id = f"a-{n}"
            task = await it.begin(call_id)
            it.value(call_id, BIG)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert memory() == 1  # it is kept: the request's connection may have broken
            it.calls.arrived(call_id)
            assert memory() == 0


async def test_a_result_that_comes_after_the_cancellation_is_let_go() -> None:
    async with stage() as it:
        task = await it.begin("a-1")
        told(await it.ask(Cancel("a-1")))
        told(await task)
        it.value("a-1", BIG)
        assert memory() == 0
        assert not it.gave_up()


async def test_many_requests_share_the_memory_of_one_result() -> None:
    async with stage() as it:
        tasks = [await it.begin("a-1"), *(it.ask(Await("a-1", 60_000)) for _ in range(5))]
        await asyncio.sleep(0)
        it.value("a-1", BIG)
        answers = await asyncio.gather(*tasks)
        it.calls.arrived("a-1")
        assert memory() == len(answers)
        assert all(isinstance(told(answer)[0], Value) for answer in answers)
        assert memory() == 0


async def test_a_worker_whose_end_is_not_known_yet_has_no_exit_code() -> None:
    async with stage() as it:
        worker = it.supervisor._worker
        assert worker is not None
        worker._channel.close()  # as when it turns out to be broken in this turn
        (failure,) = told(await it.ask(it.call("a-1")))
        assert isinstance(failure, Failure)
        assert failure.returncode is None
        assert "code" not in failure.message


async def test_a_caller_that_leaves_before_the_end_of_its_arguments_leaves_nothing(
    shared: LocalRuntime,
) -> None:
    """Only the last byte is missing."""
    data = bytes(1 << 20)
    pickled = arguments.dump((data,), {})
    call = Call(
        "leaving", "local_runtime.far::noop", "values", 1 << 30, 0, False, "", pickled.segments
    )
    start = body_prefix(messages.dump(call))
    payload = b"".join([*pickled.stream, *pickled.buffers])
    head = [
        "POST /rpc HTTP/1.1",
        "Host: runtime",
        f"Authorization: Bearer {shared.token}",
        f"Content-Type: {CONTENT_TYPE}",
        f"Content-Length: {len(start) + len(payload)}",
    ]
    before = shared.descriptors()
    for _ in range(5):
        _, writer = await asyncio.open_unix_connection(str(shared.socket))
        writer.write("\r\n".join([*head, "", ""]).encode() + start + payload[:-1])
        async with asyncio.timeout(10):
            while not any("memfd" in one for one in descriptors(shared.process.pid)):
                await asyncio.sleep(0.001)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
    async with asyncio.timeout(10):
        while len(shared.descriptors()) > len(before):
            await asyncio.sleep(0.01)


async def test_a_worker_that_cannot_be_started_for_want_of_descriptors_is_a_definite_error(
    fresh: LocalRuntime,
) -> None:
    server = fresh.process.pid
    async with raw(fresh) as one:
        worker = (await one.call("process")).value()
        limits = resource.prlimit(server, resource.RLIMIT_NOFILE)
        await one.call("write_stdout", b"a line\n")
        log = str(fresh.logs / "sandbox")
        await eventually_async(lambda: log in str(descriptors(server)), "its log file is open")
        have = len(descriptors(server))
        # One less each time: the start fails at each of the descriptors that it takes.
        for spare in range(8, -1, -1):
            most = have - _OF_A_WORKER + spare
            resource.prlimit(server, resource.RLIMIT_NOFILE, (most, limits[1]))
            os.kill(worker, signal.SIGKILL)
            async with asyncio.timeout(20):
                while "cannot be started" not in str(answer := await one.call("noop")):
                    await asyncio.sleep(0.01)
            failure = answer.failure()
            assert failure.kind == "exited"
            assert "Too many open files" in failure.message
            assert failure.returncode is None
            await eventually_async(
                lambda: len(descriptors(server)) == have - _OF_A_WORKER,
                "what it took and what the dead worker had is closed",
            )
            resource.prlimit(server, resource.RLIMIT_NOFILE, limits)
            async with asyncio.timeout(20):
                while not isinstance((await one.call("noop")).message, Value):
                    await asyncio.sleep(0.05)
            worker = (await one.call("process")).value()
