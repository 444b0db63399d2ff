"""What a killed host program leaves in an engine, and that it is found and removed."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from patience import PAUSE
from stub_runtime import python

from agentix import SandboxConfig
from agentix.provider.base import Owner, SandboxId
from agentix.provider.runtime_folder import RuntimeFolder

if TYPE_CHECKING:
    from engines import EngineUnderTest
    from images.engine import Leftovers

    from agentix.bundle import CachedBundle
    from agentix.provider.base import ListedSandbox

pytestmark = pytest.mark.nix

OWNER = """
    import asyncio, sys
    from agentix import SandboxConfig
    from agentix.provider import providers
    async def main():
        config = SandboxConfig(image=sys.argv[2], bundle=sys.argv[3])
        print((await providers().get(sys.argv[1])().create(config)).sandbox_id, flush=True)
        await asyncio.Event().wait()
    asyncio.run(main())
"""


@pytest.fixture
def config(numpy_bundle: CachedBundle, busybox: str) -> SandboxConfig:
    return SandboxConfig(image=busybox, bundle=str(numpy_bundle.path))


def abandoned(engine: EngineUnderTest, config: SandboxConfig) -> SandboxId:
    """Have a process make a sandbox, and kill it."""
    words = (engine.kind, config.image, str(config.bundle))
    with subprocess.Popen(python(OWNER, *words), stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        sandbox_id = SandboxId(owner.stdout.readline().strip())
        owner.kill()
    return sandbox_id


async def listed(engine: EngineUnderTest, sandbox_id: SandboxId) -> ListedSandbox | None:
    """Return what is shown of one: others use the engine, too."""
    found = [each for each in await engine.provider().list() if each.sandbox_id == sandbox_id]
    return found[0] if found else None


async def stopped(engine: EngineUnderTest, sandbox_id: SandboxId) -> ListedSandbox:
    """Stop one behind everybody's back; its engine may show it as running for a moment longer."""
    await asyncio.to_thread(engine.client.api.stop, f"agentix-{sandbox_id}", timeout=0)
    async with asyncio.timeout(20):
        while True:
            found = await listed(engine, sandbox_id)
            assert found is not None
            if found.status != "running":
                return found
            await asyncio.sleep(PAUSE)


async def test_a_container_is_shown_with_what_its_maker_knows(
    engine: EngineUnderTest, leftovers: Leftovers, config: SandboxConfig
) -> None:
    async with engine.provider().session(config) as sandbox:
        found = await listed(engine, sandbox.sandbox_id)
        assert found is not None
        assert (found.provider, found.image, found.status) == (engine.kind, config.image, "running")
        assert (found.owner, found.abandoned) == (Owner.current(), False)
        ended = await stopped(engine, sandbox.sandbox_id)
        assert (ended.status, ended.abandoned) == ("exited", False)
        assert not ended.prunable(running=True)
    assert await listed(engine, sandbox.sandbox_id) is None


@pytest.mark.parametrize("record", ["kept", "lost"])
async def test_what_a_killed_process_left_is_found_also_by_its_labels_alone(
    engine: EngineUnderTest, leftovers: Leftovers, config: SandboxConfig, record: str
) -> None:
    sandbox_id = abandoned(engine, config)
    recorded = await listed(engine, sandbox_id)
    assert recorded is not None
    folder = RuntimeFolder.find(sandbox_id)[0]
    if record == "lost":
        shutil.rmtree(folder.path)
    found = await listed(engine, sandbox_id)
    assert found == recorded
    assert (found.status, found.abandoned) == ("running", True)
    assert not found.prunable(running=False)
    assert found.prunable(running=True)
    ended = await stopped(engine, sandbox_id)
    assert (ended.status, ended.abandoned) == ("exited", True)
    would = await engine.provider().prune(dry_run=True)
    assert ended in would.removed
    if engine.kind == "podman":  # that one is the test's own
        done = await engine.provider().prune()
        assert [each.sandbox_id for each in done.removed] == [sandbox_id]
    else:
        await engine.provider().delete(sandbox_id)
    assert await listed(engine, sandbox_id) is None
