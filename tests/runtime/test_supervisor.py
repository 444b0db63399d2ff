"""The server lets go of every result and of every descriptor, whoever goes away and when."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from typing import TYPE_CHECKING, Any

import pytest
from local_runtime import LocalRuntime, descriptors, far

from agentix.errors import WorkerExited
from agentix.wire import arguments, messages
from agentix.wire.frames import body_prefix
from agentix.wire.messages import Call, Value
from agentix.wire.protocol import CONTENT_TYPE, MAX_INLINE
from agentix_runtime.channel import Channel, Payload, pair
from agentix_runtime.parcel import Parcel
from agentix_runtime.server.process import Limits, Spawned
from agentix_runtime.server.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable


class Reaper:
    """Stands for the one that waits for processes: here is none."""

    def watch(self, pid: int, ended: Callable[[int], None]) -> None:
        self.ended = ended


def memory() -> int:
    return sum("memfd:agentix" in one for one in descriptors())


class Stage:
    """A supervisor whose worker is played by the test."""

    def __init__(self) -> None:
        near, far_end = pair()
        self.calls: asyncio.Queue[str] = asyncio.Queue()
        self.worker = Channel(far_end, self._receive, lambda _: None)
        self.reaper = Reaper()
        spawned = Spawned(1 << 30, near)
        self.supervisor = Supervisor(self.reaper, Limits(1, 1), spawned)  # type: ignore[arg-type]

    def _receive(self, head: bytes, payload: Payload | None) -> None:
        message = messages.load(head, (Call, messages.Cancel))
        if isinstance(message, Call):
            self.calls.put_nowait(message.id)

    def begin(self, call_id: str) -> asyncio.Task[Any]:
        call = Call(call_id, "m::f", "values", 1 << 30, 0, False, "", (1,))
        return asyncio.create_task(self.supervisor.call(messages.dump(call), call, b"x"))

    def answer(self, call_id: str) -> None:
        """Send a large result, and have it arrive in this turn of the loop."""
        size = MAX_INLINE + 1
        value = Value(call_id, "values", "", (size,))
        self.worker.send(messages.dump(value), Parcel.of([bytes(size)]))
        assert self.supervisor._worker is not None
        self.supervisor._worker.channel.drain()

    def close(self) -> None:
        self.worker.close()
        self.reaper.ended(0)


async def test_a_result_that_comes_with_the_cancellation_is_let_go() -> None:
    stage = Stage()
    for n in range(20):
        task = stage.begin(f"{n}")
        call_id = await stage.calls.get()
        stage.answer(call_id)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert memory() == 0
    stage.close()


async def test_a_result_that_comes_after_the_cancellation_is_let_go() -> None:
    stage = Stage()
    task = stage.begin("1")
    call_id = await stage.calls.get()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    stage.answer(call_id)
    assert memory() == 0
    stage.close()


async def test_memory_that_comes_with_nonsense_is_let_go() -> None:
    stage = Stage()
    task = stage.begin("1")
    await stage.calls.get()
    assert stage.supervisor._worker is not None
    channel = stage.supervisor._worker.channel
    stage.worker.send(b"nonsense", Parcel.of([bytes(MAX_INLINE + 1)]))
    channel.drain()
    assert channel.closed
    assert memory() == 0
    stage.close()
    head, _ = await task
    assert messages.load(head, messages.Failure).kind == "exited"


async def test_a_worker_whose_end_is_not_known_yet_has_no_exit_code() -> None:
    stage = Stage()
    assert stage.supervisor._worker is not None
    channel = stage.supervisor._worker.channel
    for _ in range(200):  # until calls have to wait
        channel.send(b"", bytes(100_000))
    task = stage.begin("1")
    await asyncio.sleep(0)
    channel.close()  # as when the worker closes it while the call waits
    head, _ = await task
    failure = messages.load(head, messages.Failure)
    assert failure.returncode is None
    assert "code" not in failure.message
    stage.close()


async def test_a_caller_that_leaves_before_the_end_of_its_arguments_leaves_nothing(
    shared: LocalRuntime,
) -> None:
    """Only the last byte is missing, of one too many: the memory is whole already."""
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
        f"Content-Length: {len(start) + len(payload) + 1}",
    ]
    before = descriptors(shared.process.pid)
    for _ in range(5):
        _, writer = await asyncio.open_unix_connection(str(shared.socket))
        writer.write("\r\n".join([*head, "", ""]).encode() + start + payload)
        async with asyncio.timeout(10):
            while not any("memfd" in one for one in descriptors(shared.process.pid)):
                await asyncio.sleep(0.001)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
    async with asyncio.timeout(10):
        while len(descriptors(shared.process.pid)) > len(before):
            await asyncio.sleep(0.01)


async def test_a_worker_that_cannot_be_started_for_want_of_descriptors_is_a_definite_error(
    fresh: LocalRuntime,
) -> None:
    server = fresh.process.pid
    async with fresh.client() as client:
        worker = await client.remote(far.process)
        limits = resource.prlimit(server, resource.RLIMIT_NOFILE)
        have = len(descriptors(server))
        # One less each time: the start fails at each of the descriptors that it takes.
        for spare in (2, 1, 0):
            resource.prlimit(server, resource.RLIMIT_NOFILE, (have - 1 + spare, limits[1]))
            os.kill(worker, signal.SIGKILL)
            async with asyncio.timeout(20):
                while True:
                    result = await client.try_remote(far.noop)
                    if "cannot be started" in str(result):
                        break
            error = getattr(result, "error", None)
            assert isinstance(error, WorkerExited)
            assert "Too many open files" in str(error)
            assert error.returncode is None
            assert len(descriptors(server)) == have - 1
            resource.prlimit(server, resource.RLIMIT_NOFILE, limits)
            async with asyncio.timeout(20):
                while type(await client.try_remote(far.noop)).__name__ != "Ok":
                    await asyncio.sleep(0.05)
            worker = await client.remote(far.process)
