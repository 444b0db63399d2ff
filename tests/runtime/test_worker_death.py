"""A dead worker fails its own calls at once and no others; the next call gets a new worker."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from local_runtime import LocalRuntime, appears, children, failing, far, python

from agentix.errors import RuntimeUnreachable, WorkerExited


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
async def test_a_killed_worker_is_reported_with_its_signal(
    shared: LocalRuntime, signum: signal.Signals
) -> None:
    async with shared.client() as client:
        waiting = asyncio.create_task(client.remote(far.asleep, 60))
        pid = await client.remote(far.process)
        start = time.perf_counter()
        with pytest.raises(WorkerExited) as caught:
            await client.remote(failing.kill, int(signum))
        assert (caught.value.returncode, caught.value.signal) == (-signum, signum.name)
        with pytest.raises(WorkerExited):
            await waiting
        assert time.perf_counter() - start < 3
        assert await client.remote(far.process) != pid


async def test_an_exiting_worker_is_reported_with_its_code(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        for _ in range(5):
            with pytest.raises(WorkerExited, match="exited with code 7") as caught:
                await client.remote(failing.die, 7)
            assert (caught.value.returncode, caught.value.signal) == (7, None)
        assert await client.remote(far.noop, 1) == 1


async def test_a_worker_killed_from_outside_while_it_is_stopped(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        pid = await client.remote(far.process)
        os.kill(pid, signal.SIGSTOP)
        waiting = asyncio.create_task(client.remote(far.noop, 1))
        for _ in range(5):  # by then the call has long been given to the worker
            await asyncio.sleep(0)
            await client.health()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerExited):
            await waiting
        assert await client.remote(far.noop, 1) == 1


async def test_a_worker_that_loses_its_channel_is_replaced(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        with pytest.raises(WorkerExited):
            await asyncio.wait_for(client.remote(failing.close_everything), 10)
        assert await client.remote(far.noop, 1) == 1


async def test_a_worker_that_writes_nonsense_is_replaced(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        with pytest.raises(WorkerExited):
            await asyncio.wait_for(client.remote(children.write_nonsense_to_channel), 10)
        assert await client.remote(far.noop, 1) == 1


async def test_a_worker_that_cannot_start_fails_calls_and_is_not_tried_for_ever(
    tmp_path: Path,
) -> None:
    # A .pth file in the environment's own packages, as a broken bundle might have one.
    packages = next((Path(python()).parent.parent / "lib").glob("python3*/site-packages"))
    broken = packages / "zz-broken.pth"
    count = tmp_path / "starts"
    with LocalRuntime() as runtime:
        async with runtime.client() as client:
            pid = await client.remote(far.process)
            broken.write_text(f"import os; open({str(count)!r}, 'a').write('x'); os._exit(9)\n")
            try:
                os.kill(pid, signal.SIGKILL)
                async with asyncio.timeout(30):
                    while True:
                        result = await client.try_remote(far.noop, 1)
                        if "times in a row" in str(result):
                            break
                assert isinstance(getattr(result, "error", None), WorkerExited)
                starts = len(count.read_text())
                for _ in range(50):
                    await client.try_remote(far.noop, 1)
                assert len(count.read_text()) - starts < 5
            finally:
                broken.unlink()
            async with asyncio.timeout(10):
                while await client.try_remote(far.noop, 1) != await _ok(1):
                    await asyncio.sleep(0.05)


async def _ok(value: object) -> object:
    from agentix import Ok

    return Ok(value)


async def test_a_server_killed_during_a_call_is_unreachable_at_once() -> None:
    with LocalRuntime() as runtime:
        async with runtime.client() as client:
            worker = await client.remote(far.process)
            call = asyncio.create_task(client.remote(far.asleep, 60))
            await client.remote(far.noop)
            runtime.process.kill()
            start = time.perf_counter()
            with pytest.raises(RuntimeUnreachable) as caught:
                await call
            assert isinstance(caught.value, ConnectionError)
            with pytest.raises(RuntimeUnreachable):
                await client.remote(far.noop)
            assert time.perf_counter() - start < 3
            async with asyncio.timeout(5):  # and its worker does not outlive it
                while Path(f"/proc/{worker}").exists():
                    await asyncio.sleep(0.01)


def test_a_busy_worker_ends_with_its_server() -> None:
    async def scenario(runtime: LocalRuntime) -> int:
        async with runtime.client() as client:
            worker = await client.remote(far.process)
            call = asyncio.create_task(client.try_remote(far.hold_loop, str(runtime.folder)))
            await appears(runtime.folder / "held")
            runtime.process.kill()
            await call
            return worker

    with LocalRuntime() as runtime:
        worker = asyncio.run(scenario(runtime))
        end = time.monotonic() + 5
        while Path(f"/proc/{worker}").exists() and time.monotonic() < end:
            time.sleep(0.01)
        assert not Path(f"/proc/{worker}").exists()


async def test_calls_in_a_dying_worker_all_end(fresh: LocalRuntime) -> None:
    async with fresh.client() as client:
        for _ in range(3):
            calls = [client.try_remote(far.asleep, 60) for _ in range(50)]
            calls += [client.try_remote(far.sleep, 60) for _ in range(20)]
            waiting = asyncio.gather(*calls)
            await client.remote(far.noop)
            await client.try_remote(failing.die, 1)
            ended = await asyncio.wait_for(waiting, 10)
            assert all(isinstance(getattr(one, "error", None), WorkerExited) for one in ended)
