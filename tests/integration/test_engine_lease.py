"""A container ends soon after the last process that holds it, and is removed by the next one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from patience import eventually, eventually_async
from stub_runtime import python

from agentix import SandboxConfig
from agentix.errors import SandboxNotFound
from agentix.provider.base import SandboxId
from agentix.provider.docker import leftovers as sweeping
from agentix.provider.kit import LEASE_ENDED, RuntimeFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engines import EngineUnderTest
    from images.engine import Leftovers

    from agentix.bundle import CachedBundle

pytestmark = pytest.mark.nix

LEASE = 1.0
LONGER = 3.0  # than the lease, and than looking whether a container still runs

HOST = """
    import asyncio, json, os, signal, sys
    from agentix import SandboxConfig
    from agentix.provider.docker import DockerProviderConfig

    work, choices, image, bundle, *ids = sys.argv[1:]
    provider = DockerProviderConfig.model_validate_json(choices).to_provider()
    config = SandboxConfig(image=image, bundle=bundle)

    async def create():
        print((await provider.create(config)).sandbox_id, flush=True)
        await asyncio.Event().wait()

    async def get():
        print((await provider.get(ids[0])).sandbox_id, flush=True)
        await asyncio.Event().wait()

    async def session():
        async with provider.session(config) as sandbox:
            print(sandbox.sandbox_id, flush=True)
            await asyncio.Event().wait()

    async def die():  # with a container that was created, and not started
        from agentix.provider.docker.engine import Engine
        Engine.start = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        await provider.create(config)

    asyncio.run(globals()[work]())
"""


class Hosts:
    """Processes that make and hold sandboxes."""

    def __init__(
        self, engine: EngineUnderTest, config: SandboxConfig, stack: contextlib.ExitStack
    ) -> None:
        self.engine = engine
        self.config = config
        self._stack = stack

    def start(
        self, work: str, *ids: str, lease: float | None = LEASE
    ) -> tuple[subprocess.Popen[str], SandboxId]:
        """Start one that does this work; return it and the id that it says."""
        choices = json.dumps({"container_engine": self.engine.kind, "lease": lease})
        words = (work, choices, self.config.image, str(self.config.bundle), *ids)
        host = subprocess.Popen(python(HOST, *words), stdout=subprocess.PIPE, text=True)
        self._stack.enter_context(host)
        self._stack.callback(host.kill)
        assert host.stdout is not None
        return host, SandboxId(host.stdout.readline().strip())

    def exit_code(self, sandbox_id: str) -> int | None:
        """Return how its container ended; None while it runs."""
        state = self.engine.inspect(sandbox_id)["State"]
        return None if state["Running"] else int(state["ExitCode"])


@pytest.fixture
def hosts(
    engine: EngineUnderTest, leftovers: Leftovers, numpy_bundle: CachedBundle, busybox: str
) -> Iterator[Hosts]:
    config = SandboxConfig(image=busybox, bundle=str(numpy_bundle.path))
    with contextlib.ExitStack() as stack:
        yield Hosts(engine, config, stack)


async def test_a_container_ends_with_its_process_and_the_next_one_removes_it(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "_looked", {})
    host, sandbox_id = hosts.start("create")
    await asyncio.sleep(LONGER)
    assert hosts.exit_code(sandbox_id) is None
    host.kill()
    await eventually_async(lambda: hosts.exit_code(sandbox_id) == LEASE_ENDED, "it ends")
    with pytest.raises(SandboxNotFound):
        await hosts.engine.provider().get(sandbox_id)
    async with hosts.engine.provider().session(hosts.config):
        names = {each.sandbox_id for each in await hosts.engine.provider().list()}
        assert sandbox_id not in names


async def test_without_a_lease_a_container_lives_on_and_is_nobodys_to_remove(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "_looked", {})
    host, sandbox_id = hosts.start("create", lease=None)
    host.kill()
    await asyncio.sleep(LONGER)
    assert hosts.exit_code(sandbox_id) is None
    async with await hosts.engine.provider().get(sandbox_id) as sandbox:
        assert (await sandbox.health()).status == "ok"
    await asyncio.to_thread(hosts.engine.client.api.stop, f"agentix-{sandbox_id}", timeout=0)
    async with hosts.engine.provider().session(hosts.config):
        pass
    assert hosts.exit_code(sandbox_id) is not None
    await hosts.engine.provider().delete(sandbox_id)


async def test_another_process_that_got_it_keeps_it(hosts: Hosts) -> None:
    first, sandbox_id = hosts.start("create")
    second, same = hosts.start("get", sandbox_id)
    assert same == sandbox_id
    first.kill()
    await asyncio.sleep(LONGER)
    assert hosts.exit_code(sandbox_id) is None
    second.kill()
    await eventually_async(lambda: hosts.exit_code(sandbox_id) == LEASE_ENDED, "it ends")
    await hosts.engine.provider().delete(sandbox_id)


async def test_closing_a_handle_lets_nothing_go(hosts: Hosts) -> None:
    provider = hosts.engine.provider(lease=LEASE)
    sandbox = await provider.create(hosts.config)
    await sandbox.aclose()
    await asyncio.sleep(LONGER)
    assert hosts.exit_code(sandbox.sandbox_id) is None
    await provider.delete(sandbox.sandbox_id)


async def test_what_a_process_that_was_killed_had_not_started_is_removed(
    hosts: Hosts, leftovers: Leftovers, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _ = hosts.start("die")
    assert host.wait(60) == -signal.SIGKILL
    assert leftovers.containers()
    assert leftovers.folders()
    monkeypatch.setattr(sweeping, "_looked", {})
    async with hosts.engine.provider().session(hosts.config):
        assert len(leftovers.containers()) == len(leftovers.folders()) == 1


async def test_what_was_killed_before_there_was_a_container_is_removed(
    hosts: Hosts, leftovers: Leftovers, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
        import os, sys
        from agentix.provider.kit import RuntimeFolder
        RuntimeFolder.create(sys.argv[1], "an image")
    """
    subprocess.run(python(code, hosts.engine.kind), check=True)
    mine = RuntimeFolder.create(hosts.engine.kind, "an image")  # this one is being made
    monkeypatch.setattr(sweeping, "_looked", {})
    async with hosts.engine.provider().session(hosts.config) as sandbox:
        assert leftovers.folders() == sorted([mine.sandbox_id, sandbox.sandbox_id])
    mine.remove()


def test_a_process_that_is_told_to_end_leaves_nothing(hosts: Hosts, leftovers: Leftovers) -> None:
    host, _ = hosts.start("session", lease=60)
    assert len(leftovers.containers()) == 1
    host.send_signal(signal.SIGTERM)
    assert host.wait(60) == -signal.SIGTERM
    leftovers.check()


def test_a_process_that_is_told_to_end_while_it_creates_leaves_nothing(
    hosts: Hosts, leftovers: Leftovers
) -> None:
    choices = json.dumps({"container_engine": hosts.engine.kind})
    words = ("session", choices, hosts.config.image, str(hosts.config.bundle))
    with subprocess.Popen(python(HOST, *words), stdout=subprocess.PIPE) as host:
        eventually(lambda: leftovers.containers(), "a container appears")
        host.send_signal(signal.SIGTERM)
        assert host.wait(60) == -signal.SIGTERM
    leftovers.check()
