"""A process holds a sandbox for as long as it lives, whatever else it does; its children do not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from left_over import nothing_left
from local_runtime import LocalRuntime, far
from patience import eventually, eventually_async

from agentix.errors import ProviderError
from agentix.provider.kit import RuntimeFolder, hold_lease, lease_arguments, release_lease
from agentix.wire.protocol import LEASE_ENDED

if TYPE_CHECKING:
    from collections.abc import Iterator

LEASE = 0.8

HOST = """
    import asyncio, multiprocessing, os, signal, subprocess, sys, threading, time
    from pathlib import Path
    from agentix.provider.kit import RuntimeFolder, hold_lease, release_lease

    folder = RuntimeFolder(Path(sys.argv[1]), sys.argv[2])
    asyncio.run(hold_lease(folder, float(sys.argv[3])))

    def held():
        print("held", flush=True)

    def pause():
        time.sleep(600)

"""


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def runtime() -> Iterator[LocalRuntime]:
    with LocalRuntime(lease=LEASE) as runtime:
        yield runtime


def folder_of(runtime: LocalRuntime) -> RuntimeFolder:
    """Make a folder as a provider does, with this runtime's socket in it."""
    path = runtime.folder / "local-1"
    path.mkdir()
    (path / "io").symlink_to(runtime.folder)
    return RuntimeFolder(path, runtime.token)


@contextlib.contextmanager
def host(runtime: LocalRuntime, then: str) -> Iterator[subprocess.Popen[str]]:
    """Run another process that holds the sandbox and goes on with *then*."""
    folder = folder_of(runtime)
    asyncio.run(hold_lease(folder, LEASE))  # until the other one does, however slow it is
    program = textwrap.dedent(HOST) + textwrap.dedent(then)
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder.path), folder.token, str(LEASE)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("held")
        release_lease(folder.sandbox_id)
        yield process
    finally:
        release_lease(folder.sandbox_id)
        process.kill()
        process.wait()
        process.stdout.close()


def ends(runtime: LocalRuntime) -> bool:
    """Say whether the runtime ends for lack of a host, within a while."""
    return runtime.process.wait(30) == LEASE_ENDED


def goes_on(runtime: LocalRuntime) -> bool:
    """Say whether the runtime lives for longer than it would without a host."""
    time.sleep(2 * LEASE)
    return runtime.process.poll() is None


def test_a_runtime_gets_its_lease_on_its_command_line() -> None:
    assert lease_arguments(60) == ("--lease", "60.0")
    assert lease_arguments(None) == ()


def test_a_hold_lasts_beyond_the_loop_it_was_taken_in(runtime: LocalRuntime) -> None:
    folder = folder_of(runtime)
    asyncio.run(hold_lease(folder, LEASE))
    assert goes_on(runtime)
    asyncio.run(hold_lease(folder, LEASE))  # it is held already
    release_lease(folder.sandbox_id)
    release_lease(folder.sandbox_id)
    assert ends(runtime)


async def test_without_a_lease_nothing_is_held(tmp_path: Path) -> None:
    await hold_lease(RuntimeFolder(tmp_path / "no-1", "secret"), None)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_lets_go(runtime: LocalRuntime, signum: signal.Signals) -> None:
    with host(runtime, "held(); pause()") as process:
        assert goes_on(runtime)
        process.send_signal(signum)
        start = time.monotonic()
        assert ends(runtime)
        assert time.monotonic() - start < 10 * LEASE


def test_a_process_that_ends_without_a_word_lets_go(runtime: LocalRuntime) -> None:
    with host(runtime, "held()") as process:
        assert process.wait(30) == 0
        assert ends(runtime)


@pytest.mark.parametrize(
    "work",
    ["while True: pass", "sum(range(10**12))"],
    ids=["python", "a long C function"],
)
def test_a_process_whose_loop_is_busy_holds_on(runtime: LocalRuntime, work: str) -> None:
    program = f"""
    async def main():
        held()
        {work}

    asyncio.run(main())
    """
    with host(runtime, program):
        assert goes_on(runtime)


def test_a_process_that_is_stopped_holds_on(runtime: LocalRuntime) -> None:
    with host(runtime, "held(); pause()") as process:
        process.send_signal(signal.SIGSTOP)
        assert goes_on(runtime)


@pytest.mark.parametrize(
    "child",
    [
        "multiprocessing.get_context('fork').Process(target=pause).start()",
        "os.fork() or pause()",
        "subprocess.Popen(['sleep', '600'], close_fds=False)",
    ],
    ids=["multiprocessing", "fork", "exec"],
)
def test_children_do_not_hold_what_their_parent_held(runtime: LocalRuntime, child: str) -> None:
    program = f"""
    os.setpgid(0, 0)
    if __name__ == "__main__":
        {child}
        held()
        pause()
    """
    with host(runtime, program) as process:
        assert goes_on(runtime)
        process.kill()
        try:
            assert ends(runtime)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_forked_child_may_hold_it_itself(runtime: LocalRuntime) -> None:
    program = """
    if (child := os.fork()) == 0:
        asyncio.run(hold_lease(folder, float(sys.argv[3])))
        held()
        pause()
    pause()
    """
    with host(runtime, program) as process:
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        process.wait()
        assert goes_on(runtime)
        os.kill(int(child), signal.SIGKILL)
        assert ends(runtime)


def test_many_forks_while_holds_are_taken_and_broken_block_nothing(runtime: LocalRuntime) -> None:
    program = """
    done = threading.Event()

    def again():
        while not done.is_set():
            release_lease(folder.sandbox_id)
            asyncio.run(hold_lease(folder, float(sys.argv[3])))

    thread = threading.Thread(target=again)
    thread.start()
    for _ in range(200):
        if (child := os.fork()) == 0:
            release_lease(folder.sandbox_id)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    done.set()
    thread.join()
    held()
    pause()
    """
    with host(runtime, program):
        assert goes_on(runtime)


class Breaking:
    """A socket in front of a runtime's, whose connections can be broken."""

    def __init__(self, runtime: LocalRuntime) -> None:
        self._behind = str(runtime.socket)
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.count = 0

    async def __aenter__(self) -> Breaking:
        self.path = Path(self._behind).with_name("in-front") / "io"
        self.path.mkdir(parents=True)
        self._server = await asyncio.start_unix_server(self._accept, self.path / "s")
        return self

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        inner, outer = await asyncio.open_unix_connection(self._behind)
        self._writers += [writer, outer]
        for source, sink in ((reader, outer), (inner, writer)):
            task = asyncio.create_task(self._pass(source, sink))
            self._tasks.add(task)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(1 << 16):
                sink.write(data)
        sink.close()

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks)
        await asyncio.sleep(0)


async def test_a_hold_that_breaks_is_taken_up_again(runtime: LocalRuntime) -> None:
    async with Breaking(runtime) as front:
        folder = RuntimeFolder(front.path.parent, runtime.token)
        await hold_lease(folder, LEASE)
        for count in range(1, 5):
            await asyncio.sleep(LEASE / 3)
            assert front.count == count
            front.cut()
            await eventually_async(lambda n=count: front.count == n + 1, "a new connection")  # type: ignore[misc]
        await asyncio.sleep(2 * LEASE)
        assert runtime.process.poll() is None
        assert front.count == 5
        release_lease(folder.sandbox_id)


async def test_a_runtime_that_ends_is_not_asked_for_ever() -> None:
    with LocalRuntime(lease=60) as runtime:
        folder = folder_of(runtime)
        await hold_lease(folder, 60)
        runtime.process.terminate()
        await asyncio.to_thread(runtime.process.wait, 20)
        assert "agentix leases" in {thread.name for thread in threading.enumerate()}
        (folder.path / "io").unlink()
        folder.path.rmdir()  # as deleting it does, in any process
        await eventually_async(
            lambda: "agentix leases" not in {thread.name for thread in threading.enumerate()},
            "the thread has nothing to do",
        )


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "it answers 'HTTP/1.1 404 Not Found'"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "it answers 'SSH-2.0-OpenSSH_9.2'"),
        (b"HTTP/1.1 200 " + b"x" * 10_000, "it ends the connection"),
        (b"", "it ends the connection"),
        (None, "it does not answer"),
    ],
)
async def test_what_does_not_let_itself_be_held_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None, problem: str
) -> None:
    monkeypatch.setattr("agentix.provider.lease._FIRST", 0.3)
    asked: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(1000))
        if answer is not None:
            writer.write(answer)
            writer.close()
        else:
            await reader.read()
            writer.close()

    folder = RuntimeFolder(tmp_path / "odd-1", "the secret")
    folder.mount.mkdir(parents=True)
    async with await asyncio.start_unix_server(accept, folder.socket) as server:
        with pytest.raises(ProviderError, match="odd-1 does not let itself be held") as caught:
            await hold_lease(folder, LEASE)
        server.close()
    assert str(caught.value).endswith(problem)
    assert "the secret" not in str(caught.value)
    assert b"the secret" in asked[0]
    assert len(asked) < 10, "it is asked all the time"
    await asyncio.sleep(0.05)


async def test_a_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentix.provider.lease._FIRST", 0.2)
    folder = RuntimeFolder(tmp_path / "link-1", "secret")
    folder.mount.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "other"))
        other.listen()
        other.settimeout(0)
        folder.socket.symlink_to(tmp_path / "other")
        with pytest.raises(ProviderError, match="what is there is not a socket"):
            await hold_lease(folder, LEASE)
        with pytest.raises(BlockingIOError):
            other.accept()


async def test_who_is_cancelled_before_it_is_held_holds_nothing(tmp_path: Path) -> None:
    folder = RuntimeFolder(tmp_path / "none-1", "secret")
    folder.mount.mkdir(parents=True)
    task = asyncio.create_task(hold_lease(folder, LEASE))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_without_a_thread_nothing_is_held_and_the_next_attempt_has_one(
    runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    folder = folder_of(runtime)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(ProviderError, match="cannot be held: can't start new thread"):
            await hold_lease(folder, LEASE)
    await hold_lease(folder, LEASE)
    release_lease(folder.sandbox_id)


async def test_many_are_held_by_one_thread(tmp_path: Path) -> None:
    with LocalRuntime(lease=LEASE) as runtime, contextlib.ExitStack() as held:
        folders = []
        for number in range(64):
            path = tmp_path / f"local-{number}"
            path.mkdir()
            (path / "io").symlink_to(runtime.folder)
            folders.append(RuntimeFolder(path, runtime.token))
            held.callback(release_lease, folders[-1].sandbox_id)
        await asyncio.gather(*(hold_lease(folder, LEASE) for folder in folders))
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("agentix leases") == 1
        for folder in folders[1:]:
            release_lease(folder.sandbox_id)
        await asyncio.sleep(2 * LEASE)
        async with runtime.client() as client:
            assert await client.remote(far.noop, 1) == 1
        release_lease(folders[0].sandbox_id)
        assert await asyncio.to_thread(ends, runtime)


def test_a_program_ends_although_it_holds_something(runtime: LocalRuntime) -> None:
    with host(runtime, "held(); sys.exit(7)") as process:
        assert process.wait(20) == 7
    eventually(lambda: runtime.process.poll() is not None, "the runtime ends")
