"""How sandboxes begin and end, by whom, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from patience import eventually_async
from procfs import mounters, processes
from stub_runtime import host, look, make_tar, python

from agentix.bundle.collecting import collect
from agentix.errors import AgentixError, ProviderError, SandboxNotFound
from agentix.provider.base import SandboxConfig, SandboxId
from agentix.provider.bubblewrap import BubblewrapProvider, BubblewrapProviderConfig
from agentix.provider.bubblewrap.program import find_program
from agentix.provider.processes import here
from agentix.provider.runtime_folder import RuntimeFolder

pytestmark = pytest.mark.bubblewrap


async def test_a_session_gives_a_sandbox_that_answers_and_takes_it_away(
    bundle: Path, base: Path
) -> None:
    async with BubblewrapProvider().session(host(bundle)) as sandbox:
        assert (await sandbox.health()).status == "ok"
        assert sandbox.status == "running"
        assert (base / sandbox.sandbox_id).is_dir()
        assert sandbox.runtime_url.startswith("http+unix://")
        first = RuntimeFolder.find(sandbox.sandbox_id)[1]["first"]["pid"]
        assert Path(f"/proc/{first}").exists()
    assert not Path(f"/proc/{first}").exists()


async def test_a_runtime_that_ends_at_once_is_quoted(bundle: Path, base: Path) -> None:
    with pytest.raises(ProviderError) as caught:
        await BubblewrapProvider().create(host(bundle, STUB="exit"))
    message = str(caught.value)
    assert "ended before it was ready (exit status 3)" in message
    assert message.endswith("its output ends with: first line | the reason why it ends")


async def test_a_runtime_that_never_answers_is_waited_for_with_a_bound(bundle: Path) -> None:
    provider = BubblewrapProviderConfig(start_timeout=0.5).to_provider()
    with pytest.raises(ProviderError, match=r"did not become ready within 0\.5 s"):
        await provider.create(host(bundle, STUB="never"))


async def test_a_runtime_that_ignores_the_request_to_end_is_killed(bundle: Path) -> None:
    provider = BubblewrapProviderConfig(stop_timeout=0.5).to_provider()
    sandbox = await provider.create(host(bundle, STUB="ignore-term"))
    await sandbox.aclose()
    started = time.monotonic()
    await provider.delete(sandbox.sandbox_id)
    assert 0.4 < time.monotonic() - started < 5


async def test_what_a_task_leaves_in_the_folder_of_its_socket_is_removed(bundle: Path) -> None:
    dig = "[(os.mkdir('d' * 20), os.chdir('d' * 20)) for _ in range(2000)]"
    async with BubblewrapProvider().session(host(bundle)) as sandbox:
        await look(sandbox, "os.chdir('/nix/run')")
        assert len(await look(sandbox, dig)) == 2000
        await look(sandbox, "os.symlink('/etc', '/nix/run/link')")


async def test_processes_of_the_task_end_with_the_sandbox(bundle: Path) -> None:
    async with BubblewrapProvider().session(host(bundle, STUB="children")) as sandbox:
        first = RuntimeFolder.find(sandbox.sandbox_id)[1]["first"]["pid"]
        pids = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        assert len(pids) == 3
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


async def test_output_is_read_for_as_long_as_a_sandbox_lives(bundle: Path) -> None:
    async with BubblewrapProvider().session(host(bundle, STUB="talk")) as sandbox:
        for _ in range(3):
            written = "len([print('z' * 999, flush=True) for _ in range(1000)])"
            assert await look(sandbox, written) == 1000


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 4, 7, 11, 16, 23, 32, 45, 64, 90, 130])
async def test_a_cancelled_creation_leaves_nothing(bundle: Path, milliseconds: int) -> None:
    task = asyncio.create_task(BubblewrapProvider().create(host(bundle, STUB="never")))
    await asyncio.wait({task}, timeout=milliseconds / 1000)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_creation_cancelled_twice_leaves_nothing(bundle: Path) -> None:
    for _ in range(10):
        task = asyncio.create_task(BubblewrapProvider().create(host(bundle, STUB="never")))
        await asyncio.wait({task}, timeout=0.05)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_creations_that_fail_again_and_again_leave_no_file(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"no archive")

    def files() -> set[Path]:
        return {path for path in tmp_path.rglob("*") if path.suffix != ".lock"}

    before = files()
    for _ in range(5):
        for config in (
            host(bundle, STUB="exit"),
            SandboxConfig(image=str(broken), bundle=bundle),
            SandboxConfig(image="host", bundle=broken),
        ):
            with pytest.raises(AgentixError):
                await BubblewrapProvider().create(config)
    assert {path for path in files() - before if path.is_file()} == set()
    assert list(scratch.iterdir()) == []


async def test_many_sandboxes_at_once_are_all_distinct(bundle: Path) -> None:
    provider = BubblewrapProvider()

    async def one(number: int) -> tuple[str, Any]:
        async with provider.session(host(bundle, NUMBER=str(number))) as sandbox:
            return sandbox.runtime_url, await look(sandbox, "os.environ['NUMBER']")

    results = await asyncio.gather(*(one(number) for number in range(16)))
    assert len({url for url, _ in results}) == 16
    assert [number for _, number in results] == [str(number) for number in range(16)]


OTHER = """
    import asyncio, sys
    from agentix.provider.bubblewrap import BubblewrapProvider
    from agentix.errors import AgentixError, SandboxNotFound
    async def main():
        provider = BubblewrapProvider()
        async with await provider.get(sys.argv[1]) as sandbox:
            print((await sandbox.health()).status)
        await provider.delete(sys.argv[1])
        try:
            await provider.get(sys.argv[1])
        except SandboxNotFound as error:
            print(error)
    asyncio.run(main())
"""


async def test_another_process_can_use_and_delete_it(bundle: Path) -> None:
    provider = BubblewrapProvider()
    sandbox = await provider.create(host(bundle))
    other = await asyncio.create_subprocess_exec(
        *python(OTHER, sandbox.sandbox_id), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await other.communicate()
    assert output.decode().splitlines() == [
        "ok",
        f"no sandbox {sandbox.sandbox_id!r} is known to this user on this machine",
    ]
    await provider.delete(sandbox.sandbox_id)
    with pytest.raises(SandboxNotFound):
        await provider.get(sandbox.sandbox_id)


async def test_a_sandbox_that_ended_by_itself_is_not_given_and_can_be_deleted(bundle: Path) -> None:
    provider = BubblewrapProvider()
    sandbox = await provider.create(host(bundle))
    facts = RuntimeFolder.find(sandbox.sandbox_id)[1]
    os.kill(facts["first"]["pid"], 9)
    watcher = Path(f"/proc/{facts['launcher']['pid']}")
    await eventually_async(lambda: not watcher.exists(), "bubblewrap ends")
    with pytest.raises(SandboxNotFound, match="has ended"):
        await provider.get(sandbox.sandbox_id)
    await provider.delete(sandbox.sandbox_id)


async def test_deleting_what_never_was_does_nothing() -> None:
    await BubblewrapProvider().delete(SandboxId("bubblewrap-0123456789ab"))
    await BubblewrapProvider().delete(SandboxId("../../etc"))


async def test_a_number_that_belongs_to_another_process_by_now_is_not_touched(base: Path) -> None:
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        folder = RuntimeFolder.create("bubblewrap")
        stale = {"pid": innocent.pid, "started": 1}
        folder.record({"first": stale, "launcher": stale, **here()._asdict()})
        await BubblewrapProvider().delete(folder.sandbox_id)
        assert innocent.poll() is None
        assert not folder.path.exists()
    finally:
        innocent.kill()
        innocent.wait()


OWNER = """
    import asyncio, sys
    from agentix import SandboxConfig
    from agentix.provider.bubblewrap import BubblewrapProvider
    async def main():
        sandbox = await BubblewrapProvider().create(SandboxConfig(image="host", bundle=sys.argv[1]))
        print(sandbox.sandbox_id, flush=True)
        await asyncio.Event().wait()
    asyncio.run(main())
"""


async def test_a_sandbox_does_not_outlive_its_owner_that_was_killed(bundle: Path) -> None:
    owner = subprocess.Popen(python(OWNER, str(bundle)), stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        sandbox_id = SandboxId(owner.stdout.readline().strip())
    facts = RuntimeFolder.find(sandbox_id)[1]
    owner.kill()
    owner.wait()
    first = Path(f"/proc/{facts['first']['pid']}")
    await eventually_async(lambda: not first.exists(), "the sandbox ends", within=10)
    await BubblewrapProvider().delete(sandbox_id)


KILLED_EARLY = """
    import asyncio, os, signal, sys, time
    from agentix import SandboxConfig
    from agentix.provider.bubblewrap import BubblewrapProviderConfig
    from agentix.provider.kit import remove_leftovers
    remove_leftovers("bubblewrap")  # now, so that no child is killed while it does
    provider = BubblewrapProviderConfig(program=sys.argv[2]).to_provider()
    config = SandboxConfig(image="host", bundle=sys.argv[1], env={"STUB": "never"})
    for number in range(60):
        owner = os.fork()
        if owner == 0:
            asyncio.run(provider.create(config))
        time.sleep(number / 1000)
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
"""


async def test_an_owner_killed_while_a_sandbox_is_made_leaves_no_process(
    bundle: Path, base: Path, tmp_path: Path
) -> None:
    program = tmp_path / "mine" / "bwrap"  # a name that no other test's processes have
    program.parent.mkdir()
    program.symlink_to(find_program())

    def alive() -> list[str]:
        return processes(str(program)) + mounters(str(bundle))

    code = python(KILLED_EARLY, str(bundle), str(program))
    killed = await asyncio.create_subprocess_exec(*code)
    assert await killed.wait() == 0
    await eventually_async(lambda: not alive(), "every process ends", within=20)
    for folder in base.iterdir():
        os.utime(folder, (0, 0))  # one without a record is somebody's new one for a while
    await BubblewrapProvider().prune()


async def test_the_bundle_of_what_runs_is_not_collected_and_then_it_is(tmp_path: Path) -> None:
    tar = make_tar(tmp_path)
    async with BubblewrapProvider().session(host(tar)) as sandbox:
        assert collect(tmp_path / "cache", older_than=0).removed == ()
        assert await look(sandbox, "os.path.exists('/nix/runtime/bootstrap.sh')")
    assert len(collect(tmp_path / "cache", older_than=0).removed) == 1


async def test_a_mount_keeps_the_bundle_of_an_owner_that_was_killed(tmp_path: Path) -> None:
    """Here the owner is gone before its sandbox is: that is stopped, so it cannot notice."""
    tar = make_tar(tmp_path)
    owner = subprocess.Popen(python(OWNER, str(tar)), stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        sandbox_id = SandboxId(owner.stdout.readline().strip())
    first = RuntimeFolder.find(sandbox_id)[1]["first"]["pid"]
    os.kill(first, signal.SIGSTOP)
    try:
        owner.kill()
        owner.wait()
        assert collect(tmp_path / "cache", older_than=0).removed == ()
    finally:
        os.kill(first, signal.SIGCONT)
    gone = Path(f"/proc/{first}")
    await eventually_async(lambda: not gone.exists(), "the sandbox ends", within=10)
    await BubblewrapProvider().delete(sandbox_id)
    assert len(collect(tmp_path / "cache", older_than=0).removed) == 1


COLLECTOR = """
    import sys
    from pathlib import Path
    from agentix.bundle.collecting import collect
    print("begins", flush=True)
    while True:
        for _ in collect(Path(sys.argv[1]), older_than=0).removed:
            print("removed", flush=True)
"""


async def test_sandboxes_are_made_and_collections_run_at_once(tmp_path: Path) -> None:
    """Whoever makes one has the whole bundle, however often others take it in between."""
    tar, provider = make_tar(tmp_path), BubblewrapProvider()
    collector = await asyncio.create_subprocess_exec(
        *python(COLLECTOR, str(tmp_path / "cache")), stdout=asyncio.subprocess.PIPE
    )
    assert collector.stdout is not None

    async def count() -> None:
        for _ in range(5):
            assert await collector.stdout.readline()  # type: ignore[union-attr]

    enough = asyncio.create_task(count())
    try:
        async with asyncio.timeout(60):
            while not enough.done():
                async with provider.session(host(tar)) as sandbox:
                    assert await look(sandbox, "os.path.exists('/nix/runtime/bootstrap.sh')")
            await enough
    finally:
        enough.cancel()
        collector.kill()
        await collector.communicate()
