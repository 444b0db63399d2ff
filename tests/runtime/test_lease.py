"""The lease: a runtime that no host holds ends by itself, and one that is held does not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from local_runtime import LocalRuntime, far, python
from patience import eventually_async

from agentix.wire.protocol import LEASE_ENDED
from agentix_runtime.server.lease import MOST

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

LEASE = 0.8


async def ask_to_hold(
    runtime: LocalRuntime, rest: str = ""
) -> tuple[int, StreamReader, StreamWriter]:
    """Ask to hold it; give the status and the connection."""
    reader, writer = await asyncio.open_unix_connection(str(runtime.socket))
    head = f"POST /hold HTTP/1.1\r\nAuthorization: Bearer {runtime.token}\r\n{rest}\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(20):
        answer = await reader.readuntil(b"\r\n\r\n")
    return int(answer.split()[1]), reader, writer


async def hold(runtime: LocalRuntime) -> StreamWriter:
    """Hold it."""
    status, _, writer = await ask_to_hold(runtime)
    assert status == 200
    return writer


async def let_go(writer: StreamWriter) -> None:
    """Let go of it."""
    writer.close()
    await writer.wait_closed()


async def ended(runtime: LocalRuntime) -> int:
    """Wait for its end, for a while; return its exit status."""
    return await asyncio.to_thread(runtime.process.wait, 30)


async def test_it_ends_when_nobody_holds_it_from_the_start() -> None:
    with LocalRuntime(lease=LEASE) as runtime:
        assert await ended(runtime) == LEASE_ENDED
        assert time.perf_counter() - runtime.started > LEASE
        assert runtime.said().splitlines() == [
            f"agentix_runtime: nobody has held this sandbox for {LEASE} s, so it has ended"
        ]
        assert not runtime.socket.exists()


async def test_it_goes_on_while_it_is_held_and_ends_a_lease_after_that() -> None:
    with LocalRuntime(lease=LEASE) as runtime:
        writer = await hold(runtime)
        await asyncio.sleep(2 * LEASE)
        assert runtime.process.poll() is None
        start = time.monotonic()
        await let_go(writer)
        assert await ended(runtime) == LEASE_ENDED
        assert time.monotonic() - start > LEASE * 0.9


async def test_a_hold_that_breaks_may_be_taken_up_again_within_the_lease() -> None:
    with LocalRuntime(lease=LEASE) as runtime:
        for _ in range(6):
            writer = await hold(runtime)
            await let_go(writer)
            await asyncio.sleep(LEASE / 4)
        writer = await hold(runtime)
        await asyncio.sleep(2 * LEASE)
        assert runtime.process.poll() is None
        await let_go(writer)


async def test_one_of_several_hosts_is_enough() -> None:
    with LocalRuntime(lease=LEASE) as runtime:
        first, second = await hold(runtime), await hold(runtime)
        await let_go(first)
        await asyncio.sleep(2 * LEASE)
        assert runtime.process.poll() is None
        await let_go(second)
        assert await ended(runtime) == LEASE_ENDED


async def test_calls_alone_hold_nothing_and_end_with_it() -> None:
    with LocalRuntime(lease=LEASE) as runtime:
        async with runtime.client() as client:
            call = asyncio.create_task(client.try_remote(far.sleep, 60))
            assert await ended(runtime) == LEASE_ENDED
            async with asyncio.timeout(20):
                await call


async def test_time_in_which_the_runtime_itself_is_stopped_does_not_count() -> None:
    with LocalRuntime(lease=LEASE) as runtime:
        await let_go(await hold(runtime))
        runtime.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2 * LEASE)
        runtime.process.send_signal(signal.SIGCONT)
        writer = await hold(runtime)
        await asyncio.sleep(2 * LEASE)
        assert runtime.process.poll() is None
        await let_go(writer)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_hold_does_not_keep_the_end_waiting(signum: signal.Signals) -> None:
    with LocalRuntime(lease=60) as runtime:
        _, reader, writer = await ask_to_hold(runtime)
        start = time.monotonic()
        runtime.process.send_signal(signum)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        assert await ended(runtime) == 0
        assert time.monotonic() - start < 5
        await let_go(writer)


async def test_without_a_lease_it_can_be_held_and_need_not_be(fresh: LocalRuntime) -> None:
    await let_go(await hold(fresh))
    async with fresh.client() as client:
        assert await client.remote(far.noop, 1) == 1
    assert fresh.process.poll() is None


async def test_only_so_many_holds_are_taken_and_others_get_their_place(
    fresh: LocalRuntime,
) -> None:
    before = len(fresh.descriptors())
    writers = [await hold(fresh) for _ in range(MOST)]
    status, reader, refused = await ask_to_hold(fresh)
    assert status == 503
    assert await reader.read() == b"as many hosts as can be hold this sandbox already\n"
    await let_go(refused)
    await let_go(writers.pop())
    async with asyncio.timeout(20):
        while (found := await ask_to_hold(fresh))[0] != 200:
            await let_go(found[2])
    writers.append(found[2])
    for writer in writers:
        await let_go(writer)
    await eventually_async(lambda: len(fresh.descriptors()) <= before, "the holds are closed")


async def test_who_holds_it_says_nothing_else(fresh: LocalRuntime) -> None:
    for rest in ("Content-Length: 3\r\n", "\r\nGET /health HTTP/1.1\r\n"):
        status, _, writer = await ask_to_hold(fresh, rest)
        assert status == 400
        await let_go(writer)
    _, reader, writer = await ask_to_hold(fresh)
    writer.write(b"x")
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    await let_go(writer)


async def test_it_is_held_with_the_secret_only() -> None:
    with LocalRuntime(lease=LEASE) as runtime:
        right, runtime.token = runtime.token, "wrong" * 8
        status, _, writer = await ask_to_hold(runtime)
        assert status == 401
        runtime.token = right
        assert await ended(runtime) == LEASE_ENDED
        await let_go(writer)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
def test_a_lease_that_cannot_be_is_refused(value: str) -> None:
    command = [python(), "-I", "-m", "agentix_runtime", "--socket", "s", "--token-file", "t"]
    result = subprocess.run([*command, "--lease", value], capture_output=True, text=True)
    assert result.returncode == 2
    assert f"argument --lease: invalid seconds value: '{value}'" in result.stderr


def test_nothing_of_it_stays_when_its_host_dies() -> None:
    """A host that is killed lets go, whatever it was about to do."""
    with LocalRuntime(lease=LEASE) as runtime:
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(_hold_for_ever(runtime))
            finally:
                os._exit(1)
        time.sleep(2 * LEASE)
        assert runtime.process.poll() is None
        os.kill(child, signal.SIGSTOP)  # a stopped host still holds
        time.sleep(2 * LEASE)
        assert runtime.process.poll() is None
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert runtime.process.wait(30) == LEASE_ENDED


async def _hold_for_ever(runtime: LocalRuntime) -> None:
    _, _, _writer = await ask_to_hold(runtime)
    await asyncio.Event().wait()
