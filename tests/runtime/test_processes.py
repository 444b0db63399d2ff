"""Processes: forks, orphans, daemons, and an end that leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from local_runtime import LocalRuntime, appears, children, failing, far, processes_with, python

if TYPE_CHECKING:
    from collections.abc import Callable

from agentix.errors import WorkerExited


async def _gone(pid: int) -> None:
    async with asyncio.timeout(10):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def _children(parent: int) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found[int(entry.name)] = fields[0]
    return found


@pytest.mark.parametrize(
    "function", [children.fork_and_return, children.afork_and_return, children.afork_and_wait]
)
async def test_a_function_that_forks_returns_once(shared: LocalRuntime, function: Any) -> None:
    async with shared.client() as client:
        worker = await client.remote(far.process)
        others = [asyncio.create_task(client.remote(far.asleep, 0.2)) for _ in range(10)]
        before = await client.remote(far.count)
        child = await client.remote(function)
        assert child > 0
        async with asyncio.timeout(10):
            while _state(child) not in ("", "Z"):
                await asyncio.sleep(0.01)
        assert await client.remote(far.process) == worker
        assert await client.remote(far.count) == before + 1
        await asyncio.gather(*others)


async def test_a_forked_child_that_raises_ends_with_an_error(
    shared: LocalRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with shared.client() as client:
        assert await client.remote(children.fork_and_raise) == 1
    assert "ValueError: in the child" in caplog.text


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
async def test_multiprocessing_works(
    shared: LocalRuntime, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with shared.client() as client:
        assert await client.remote(children.multiprocess, method) == [1, 2, 3]
        assert await client.remote(far.noop, 1) == 1
    assert "from a child" in caplog.text


async def test_orphans_are_collected(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        await client.remote(children.orphans, 100)
        async with asyncio.timeout(10):
            while (
                "Z" in _children(shared.process.pid).values()
                or len(_children(shared.process.pid)) > 1
            ):
                await asyncio.sleep(0.02)


def test_nothing_outlives_the_server_not_even_daemons() -> None:
    async def scenario(runtime: LocalRuntime) -> tuple[int, int]:
        async with runtime.client() as client:
            return await client.remote(children.start_daemon), await client.remote(far.process)

    with LocalRuntime() as runtime:
        pids = asyncio.run(scenario(runtime))
        start = time.perf_counter()
        runtime.process.send_signal(signal.SIGTERM)
        assert runtime.process.wait(10) == 0
        assert time.perf_counter() - start < 5
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        assert not runtime.socket.exists()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_the_end_is_bounded_while_calls_run(signum: signal.Signals) -> None:
    async def scenario(runtime: LocalRuntime) -> float:
        async with runtime.client() as client:
            functions: list[Callable[[float], Any]] = [far.sleep, far.asleep]
            calls = [asyncio.create_task(client.try_remote(one, 60)) for one in functions]
            async with asyncio.timeout(20):
                while await client.remote(far.running) < 3:
                    await asyncio.sleep(0.005)
            folder = runtime.folder
            calls.append(asyncio.create_task(client.try_remote(far.hold_loop, str(folder))))
            await appears(folder / "held")
            start = time.perf_counter()
            runtime.process.send_signal(signum)
            ended = await asyncio.wait_for(asyncio.gather(*calls), 8)
            assert all(type(one).__name__ == "Failed" for one in ended)
            await asyncio.to_thread(runtime.process.wait, 8)
            return time.perf_counter() - start

    with LocalRuntime() as runtime:
        assert asyncio.run(scenario(runtime)) < 6


def test_it_works_as_the_first_process_of_a_container() -> None:
    """In a process namespace of its own, where every orphan is its child."""
    first = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child=KILL"]
    if subprocess.run([*first, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine does not let tests make a process namespace")

    async def scenario(runtime: LocalRuntime) -> None:
        async with runtime.client() as client:
            assert (await client.health()).pid == 1
            await client.remote(children.orphans, 100)
            async with asyncio.timeout(20):  # until nothing is left but server and worker
                while await client.remote(children.processes) > 2:
                    await asyncio.sleep(0.02)
            await client.try_remote(failing.die, 3)
            assert await client.remote(far.noop, 1) == 1

    with LocalRuntime(prefix=first) as runtime:
        asyncio.run(scenario(runtime))
        (server,) = _children(runtime.process.pid)
        os.kill(server, signal.SIGTERM)
        assert runtime.process.wait(10) == 0


async def test_a_worker_inherits_only_standard_streams(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        found = await client.remote(far.environment)
        pid = await client.remote(far.process)
    for fd in found["descriptors"]:
        try:
            target = str(Path(f"/proc/{pid}/fd/{fd}").readlink())
        except FileNotFoundError:
            continue
        assert fd <= 2 or target.startswith(("anon_inode:", "socket:", "/proc", "pipe:")), target
    assert found["pgid"] == pid


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--socket", "{}/s"], "token-file"),
        (["--socket", "{}/s", "--token-file", "{}/none"], "cannot take the secret"),
        (["--socket", "{}/no/s", "--token-file", "{}/token"], "cannot listen on"),
        (["--socket", "{}/" + "x" * 120, "--token-file", "{}/token"], "107 bytes"),
        (["--tcp", "nonsense", "--token-file", "{}/token"], "HOST:PORT"),
        (["--tcp", "127.0.0.1:99999", "--token-file", "{}/token"], "HOST:PORT"),
        (["--tcp", "192.0.2.1:1", "--token-file", "{}/token"], "cannot listen on"),
        (["--socket", "{}/s", "--token-file", "{}/short"], "too short"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "token").write_text("t" * 32)
    (tmp_path / "short").write_text("t")
    ended = subprocess.run(
        [python(), "-I", "-m", "agentix_runtime", *(one.format(tmp_path) for one in arguments)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode in (1, 2)
    assert said in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert not processes_with(tmp_path)


NOHUP = """
import os, signal, sys
for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    signal.signal(ignored, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGCHLD, signal.SIGTERM])
os.execv(sys.argv[1], sys.argv[1:])
"""
SHOWN = "[line for line in open('/proc/self/status') if line.startswith(('SigBlk', 'SigIgn'))]"


async def test_a_task_blocks_and_ignores_no_signal_because_the_host_program_does() -> None:
    with LocalRuntime() as runtime:
        async with runtime.client() as client:
            usual = await client.remote(eval, SHOWN)
    with LocalRuntime(prefix=[python(), "-c", NOHUP]) as runtime:
        async with runtime.client() as client:
            assert await client.remote(eval, SHOWN) == usual
            with pytest.raises(WorkerExited):  # and the server hears of its worker's end
                await client.remote(os._exit, 3)
            assert await client.remote(eval, SHOWN) == usual
