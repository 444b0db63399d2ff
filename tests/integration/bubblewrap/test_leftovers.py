"""What a host program that was killed leaves, and that it is found and removed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import eventually, eventually_async
from procfs import children, mounters, runs
from stub_runtime import host, look, python

from agentix.errors import SandboxNotFound
from agentix.provider.base import SandboxId
from agentix.provider.bubblewrap import BubblewrapProvider
from agentix.provider.runtime_folder import RuntimeFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.provider.base import ListedSandbox

pytestmark = pytest.mark.bubblewrap

OWNER = """
    import asyncio, sys
    from agentix import SandboxConfig
    from agentix.provider.bubblewrap import BubblewrapProvider
    async def main():
        config = SandboxConfig(image="host", bundle=sys.argv[1])
        for _ in range(2):
            sandbox = await BubblewrapProvider().create(config)
            print(sandbox.sandbox_id, flush=True)
        await asyncio.Event().wait()
    asyncio.run(main())
"""


class Owner:
    """Another process, with two sandboxes."""

    def __init__(self, bundle: Path) -> None:
        self._process = subprocess.Popen(
            python(OWNER, str(bundle)), stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.sandboxes = [SandboxId(self._process.stdout.readline().strip()) for _ in range(2)]
        self.pid = self._process.pid
        self._firsts = [RuntimeFolder.find(each)[1]["first"]["pid"] for each in self.sandboxes]

    def kill(self) -> None:
        with self._process:
            self._process.kill()

    def killed(self) -> None:
        """Kill it, and return when its sandboxes have ended."""
        self.kill()
        eventually(lambda: not any(map(runs, self._firsts)), "sandboxes end", within=10)


@pytest.fixture
def owner(bundle: Path) -> Iterator[Owner]:
    owner = Owner(bundle)
    yield owner
    owner.kill()


async def mine(owner: Owner) -> dict[str, ListedSandbox]:
    listed = await BubblewrapProvider().list()
    return {each.sandbox_id: each for each in listed if each.sandbox_id in owner.sandboxes}


async def test_what_another_process_owns_is_shown_as_its_own_and_left_alone(owner: Owner) -> None:
    provider = BubblewrapProvider()
    for each in (await mine(owner)).values():
        assert (each.provider, each.image, each.status) == ("bubblewrap", "host", "running")
        assert each.owner is not None
        assert (each.owner.pid, each.abandoned) == (owner.pid, False)
    assert (await provider.prune(running=True)).removed == ()
    assert len(await mine(owner)) == 2
    owner.killed()
    await provider.prune()


async def test_what_a_killed_process_leaves_is_shown_as_ended_and_removed(
    owner: Owner, base: Path, bundle: Path
) -> None:
    provider = BubblewrapProvider()
    async with provider.session(host(bundle)) as sandbox:
        owner.killed()
        left = await mine(owner)
        assert {(each.status, each.abandoned) for each in left.values()} == {("exited", True)}
        for each in owner.sandboxes:
            with pytest.raises(SandboxNotFound, match="has ended"):
                await provider.get(each)
        done = await provider.prune()
        assert {each.sandbox_id for each in done.removed} == set(owner.sandboxes)
        assert [path.name for path in base.iterdir()] == [sandbox.sandbox_id]
        assert (await sandbox.health()).status == "ok"
    assert mounters(str(base)) == []


async def test_prunes_and_deletions_at_once_all_succeed(owner: Owner, base: Path) -> None:
    owner.killed()
    results = await asyncio.gather(
        *(BubblewrapProvider().prune() for _ in range(3)),
        *(BubblewrapProvider().delete(each) for each in owner.sandboxes),
    )
    assert all(not each.failed for each in results if each is not None)
    assert list(base.iterdir()) == []


async def test_a_living_sandbox_can_be_deleted_by_several_at_once(bundle: Path, base: Path) -> None:
    sandbox = await BubblewrapProvider().create(host(bundle))
    await asyncio.gather(*(BubblewrapProvider().delete(sandbox.sandbox_id) for _ in range(4)))
    assert list(base.iterdir()) == []


async def test_a_living_sandbox_whose_record_is_damaged_is_not_taken_for_a_leftover(
    bundle: Path,
) -> None:
    provider = BubblewrapProvider()
    async with provider.session(host(bundle)) as sandbox:
        folder = RuntimeFolder.find(sandbox.sandbox_id)[0]
        path = folder.path / "record.json"
        whole = path.read_bytes()
        path.write_bytes(whole[:50])
        os.utime(folder.path, (0, 0))
        (listed,) = await provider.list()
        assert (listed.status, listed.owner, listed.abandoned) == ("running", None, False)
        assert (await provider.prune(running=True)).removed == ()
        path.write_bytes(whole)


def in_one_loop_after_another(bundle: Path) -> list[str]:
    """Make, use and delete a sandbox, each in an ``asyncio.run`` of its own."""
    provider = BubblewrapProvider()

    async def make() -> SandboxId:
        return (await provider.create(host(bundle))).sandbox_id

    async def use(talk: int) -> str:
        async with await provider.get(made) as sandbox:
            assert await look(sandbox, f"len([print('z' * 999) for _ in range({talk})])") == talk
            return (await sandbox.health()).status

    made = asyncio.run(make())
    said = [asyncio.run(use(talk)) for talk in (1, 2000, 1)]
    asyncio.run(provider.delete(made))
    return said


def test_a_sandbox_lives_on_from_one_loop_to_the_next(bundle: Path, base: Path) -> None:
    assert in_one_loop_after_another(bundle) == ["ok", "ok", "ok"]
    assert list(base.iterdir()) == []


def test_a_sandbox_made_in_a_thread_outlives_it(bundle: Path) -> None:
    async def aside() -> list[str]:
        return await asyncio.to_thread(in_one_loop_after_another, bundle)

    assert asyncio.run(aside()) == ["ok", "ok", "ok"]


async def test_the_launcher_has_nothing_of_the_hosts_environment(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "SECRET", "PATH"):
        monkeypatch.setenv(name, "/of/the/host")
    async with BubblewrapProvider().session(host(bundle)) as sandbox:
        launcher = RuntimeFolder.find(sandbox.sandbox_id)[1]["launcher"]["pid"]
        assert Path(f"/proc/{launcher}/environ").read_bytes() == b""
        assert "/of/the/host" not in str(await look(sandbox, "dict(os.environ)"))


async def test_a_runtime_that_has_to_be_killed_is_no_zombie_afterwards(bundle: Path) -> None:
    before = children()
    sandbox = await BubblewrapProvider().create(host(bundle, STUB="ignore-term"))
    facts = RuntimeFolder.find(sandbox.sandbox_id)[1]
    os.kill(facts["first"]["pid"], signal.SIGSTOP)
    provider = BubblewrapProvider()
    provider.config = provider.config.model_copy(update={"stop_timeout": 0.2})
    await asyncio.wait_for(provider.delete(sandbox.sandbox_id), 20)
    assert children() == before


KILLED = """
    import asyncio, os, signal, sys, time
    from agentix import SandboxConfig
    from agentix.provider.bubblewrap import BubblewrapProvider
    from agentix.provider.kit import remove_leftovers
    remove_leftovers("bubblewrap")  # now, so that no child does, which would take the others' away
    config = SandboxConfig(image="host", bundle=sys.argv[1], env={"STUB": "never"})
    base, end = sys.argv[2], time.monotonic() + 60
    def count():
        return len(os.listdir(base)) if os.path.isdir(base) else 0
    for number in range(8):
        owner = os.fork()
        if owner == 0:
            asyncio.run(BubblewrapProvider().create(config))
        while count() <= number and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(number / 80)  # ever further in its making
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
"""


async def test_what_was_half_made_when_its_maker_was_killed_is_removed_too(
    bundle: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    killed = await asyncio.create_subprocess_exec(*python(KILLED, str(bundle), str(base)))
    assert await killed.wait() == 0
    await eventually_async(lambda: not mounters(str(bundle)), "every process ends", within=20)
    folders = list(base.iterdir())
    assert len(folders) == 8
    for folder in folders:
        os.utime(folder, (0, 0))  # else one without a record might be about to get one
    provider = BubblewrapProvider()
    assert {each.abandoned for each in await provider.list()} == {True}
    assert len((await provider.prune()).removed) == len(folders)
    assert list(base.iterdir()) == []
    assert list(scratch.iterdir()) == []
