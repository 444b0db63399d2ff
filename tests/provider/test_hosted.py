"""Programs that a provider starts: looked after in any loop or none, and gone with their owner."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from left_over import nothing_left
from patience import eventually, eventually_async
from procfs import processes, runs
from stub_runtime import python

from agentix.provider.hosted import HostedProcess, settled
from agentix.provider.output import OutputTail
from agentix.provider.processes import ProcessRef, SandboxProcesses

if TYPE_CHECKING:
    from collections.abc import Iterator

SH = shutil.which("sh") or "/bin/sh"


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


def shell(script: str, *words: str, **options: object) -> HostedProcess:
    return HostedProcess.start([SH, "-c", script, *words], tail=OutputTail(), **options)  # type: ignore[arg-type]


def test_what_one_loop_started_another_looks_after() -> None:
    async def start() -> HostedProcess:
        return shell("echo ready; cat; echo over")

    process = asyncio.run(start())
    eventually(lambda: "ready" in process.tail.text(), "it starts")

    async def watch() -> str:
        ended = asyncio.create_task(process.ended())
        await asyncio.sleep(0)
        process.itself.send(signal.SIGTERM)
        return await ended

    assert asyncio.run(watch()) == "killed by SIGTERM"
    assert asyncio.run(process.ended()) == "killed by SIGTERM"
    asyncio.run(settled(process.itself))


def test_output_is_read_while_no_loop_runs() -> None:
    process = shell("head -c 10000000 /dev/zero | tr '\\0' x; printf end; exit 3")
    eventually(lambda: process.returncode is not None, "it is never stuck", within=20)
    assert process.returncode == 3
    assert process.tail.text().endswith("xxxend")


async def test_all_that_was_printed_is_there_when_the_end_is_told() -> None:
    for _ in range(20):
        process = shell("echo the reason; exit 1")
        assert await process.ended() == "exit status 1"
        assert process.tail.text() == "the reason\n"


@pytest.mark.parametrize(
    ("script", "manner"),
    [
        ("exit 3", "exit status 3"),
        ("kill -9 $$", "killed by SIGKILL"),
        ("exit 143", "killed by SIGTERM"),  # how launchers pass on what ended their child
        ("exit 255", "exit status 255"),
    ],
)
async def test_the_end_is_told_as_a_shell_would(script: str, manner: str) -> None:
    assert await shell(script).ended() == manner


async def test_nothing_of_the_host_program_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "http_proxy", "SECRET"):
        monkeypatch.setenv(name, "/of/the/host")
    before = os.umask(0o077)
    try:
        process = HostedProcess.start(
            [sys.executable, "-c", "import os; print(os.environ, os.getcwd(), os.umask(0))"],
            tail=OutputTail(),
            env={"LC_CTYPE": "C.UTF-8"},
        )
    finally:
        os.umask(before)
    await process.ended()
    assert process.tail.text() == f"environ({ {'LC_CTYPE': 'C.UTF-8'} }) / {0o022}\n"


SHOW = """
import os, sys
print(os.read(int(sys.argv[1]), 99).decode(), os.getsid(0), sep="\\n")
for name in os.listdir("/proc/self/fd"):
    if os.path.exists(f"/proc/self/fd/{name}"):  # that of the listing is closed by now
        print(name)
"""


async def test_it_has_a_session_and_the_descriptors_that_it_was_given() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", 0) as file:
        file.write(b"passed on")
    process = HostedProcess.start(
        [sys.executable, "-IS", "-c", SHOW, str(reading)], tail=OutputTail(), pass_fds=(reading,)
    )
    os.close(reading)
    await process.ended()
    said, session, *descriptors = process.tail.text().splitlines()
    assert said == "passed on"
    assert session == str(process.itself.pid)
    assert descriptors == ["0", "1", "2", str(reading)]


async def test_a_wait_that_is_cancelled_leaves_nothing() -> None:
    process = shell("cat")
    for _ in range(3):
        wait = asyncio.create_task(process.ended())
        await asyncio.sleep(0)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
    assert process._waiting == []
    await process.kill()


def test_a_loop_that_is_gone_disturbs_no_other() -> None:
    process = shell("cat")
    abandoned = asyncio.new_event_loop()
    waiting = abandoned.create_task(process.ended())
    abandoned.run_until_complete(asyncio.sleep(0))
    abandoned.close()  # with somebody waiting in it still
    asyncio.run(process.kill())
    assert process.returncode == -signal.SIGKILL
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]


TREE = """
import subprocess, sys, threading, time
def more():
    while True:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]])
for _ in range(2):
    threading.Thread(target=more).start()
print("busy", flush=True)
"""


async def test_killing_takes_all_below_it_however_busy(tmp_path: Path) -> None:
    mark = str(tmp_path)
    process = HostedProcess.start([sys.executable, "-c", TREE, mark], tail=OutputTail())
    await eventually_async(lambda: len(processes(mark)) > 5, "it starts children")
    await process.kill()
    assert processes(mark) == []


async def test_who_outlives_it_does_not_delay_its_end_and_never_gets_stuck(tmp_path: Path) -> None:
    done = tmp_path / "done"
    script = '(cat "$1"; head -c 1000000 /dev/zero; : > "$2") & exit 3'
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    process = shell(script, "sh", str(gate), str(done), env={"PATH": os.defpath})
    assert await asyncio.wait_for(process.ended(), 20) == "exit status 3"
    with gate.open("w"):
        pass
    await eventually_async(done.exists, "what outlives it can print")
    name = f"agentix-output-{process.itself.pid}"
    await eventually_async(
        lambda: name not in {thread.name for thread in threading.enumerate()}, "its thread ends"
    )


def test_a_program_that_cannot_be_started_leaves_nothing() -> None:
    with pytest.raises(FileNotFoundError):
        HostedProcess.start(["/nonexistent"], tail=OutputTail())


def test_without_a_thread_to_look_after_it_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(OSError, match="no thread"):
        shell("sleep 600", str(tmp_path), env={"PATH": os.defpath})
    eventually(lambda: processes(str(tmp_path)) == [], "all of it ends", within=10)


async def test_an_exit_status_that_somebody_else_collected_hangs_nothing() -> None:
    process = shell("read line")
    stolen = asyncio.create_task(asyncio.to_thread(os.waitpid, process.itself.pid, 0))
    await asyncio.sleep(0)
    process.itself.send(signal.SIGKILL)
    with suppress(ChildProcessError):  # it was collected here first, after all
        await stolen
    await asyncio.wait_for(process.ended(), 20)


OWNER = """
    import os, sys, time
    from agentix.provider.hosted import HostedProcess
    from agentix.provider.output import OutputTail
    process = HostedProcess.start(["/bin/sh", "-c", "cat"], tail=OutputTail())
    if os.fork() == 0:
        sys.stdout.close()
        time.sleep(600)
    print(process.itself.pid, flush=True)
    time.sleep(600)
"""


def test_it_ends_with_its_owner_also_when_that_has_forked(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        python(OWNER, str(tmp_path)), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert owner.stdout is not None
        with owner.stdout:
            pid = int(owner.stdout.readline())
        assert runs(pid)
        owner.kill()
        owner.wait()
        assert processes(str(tmp_path))  # the fork goes on
        eventually(lambda: not runs(pid), "it notices the end of its owner", within=10)
    finally:
        os.killpg(owner.pid, signal.SIGKILL)


def test_a_fork_does_not_collect_what_its_parent_started() -> None:
    process = shell("cat")
    child = os.fork()
    if child == 0:
        os._exit(3 if process._process.poll() == 0 else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert process.returncode is None
    assert process.itself.runs()
    asyncio.run(process.kill())


def test_a_fork_leaves_alone_what_has_the_number_of_its_parents_descriptor_by_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentix.provider.hosted._LINGER", 60.0)
    process = shell("sleep 600 & echo up; read line")
    eventually(lambda: "up" in process.tail.text(), "it starts")
    number = process._descriptor
    process.itself.send(signal.SIGKILL)  # and now the output is waited for
    eventually(lambda: not Path(f"/proc/self/fd/{number}").exists(), "its end is noticed")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, number)
    try:
        assert process.returncode is None
        child = os.fork()
        if child == 0:
            os._exit(3 if Path(f"/proc/self/fd/{number}").exists() else 4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    finally:
        os.killpg(process.itself.pid, signal.SIGKILL)
        for descriptor in {null, number}:
            os.close(descriptor)
        asyncio.run(process.ended())
        eventually(lambda: process._process.stdout.closed, "all of it ends")  # type: ignore[union-attr]


async def test_processes_of_an_earlier_boot_have_ended_whoever_has_their_number() -> None:
    innocent = shell("cat")
    facts = SandboxProcesses(innocent.itself, innocent.itself, (innocent.itself,)).facts()
    assert SandboxProcesses.parse(facts).first.runs()
    before = SandboxProcesses.parse(facts | {"boot": "another"})
    assert not before.first.runs()
    await before.stop(0.1)
    assert innocent.itself.runs()
    await innocent.kill()


async def test_helpers_that_outlive_the_launcher_end_with_the_sandbox() -> None:
    launcher, helper = shell("cat"), shell("cat")
    facts = SandboxProcesses(launcher.itself, launcher.itself, (helper.itself,)).facts()
    await SandboxProcesses.parse(json.loads(json.dumps(facts))).stop(0.1)
    assert not launcher.itself.runs()
    assert not helper.itself.runs()
    await settled(launcher.itself)
    await settled(helper.itself)


async def test_a_number_that_has_a_new_owner_is_nobody_s() -> None:
    innocent = shell("cat")
    stale = ProcessRef(innocent.itself.pid, innocent.itself.started - 1)
    await SandboxProcesses(stale, stale).stop(0.1)
    assert innocent.itself.runs()
    await innocent.kill()
