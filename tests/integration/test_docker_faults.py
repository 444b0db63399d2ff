"""A container that is killed is missed within seconds."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from agentix import RuntimeUnreachable, SandboxConfig

if TYPE_CHECKING:
    from engines import EngineUnderTest
    from images.engine import Leftovers

    from agentix import Sandbox
    from agentix.bundle import CachedBundle

pytestmark = pytest.mark.nix


@pytest.fixture
def config(numpy_bundle: CachedBundle, busybox: str) -> SandboxConfig:
    return SandboxConfig(image=busybox, bundle=str(numpy_bundle.path))


@pytest.mark.parametrize("during", ["an inline call", "a long call", "a stream"])
def test_a_container_that_is_killed_is_missed_within_seconds(
    leftovers: Leftovers, engine: EngineUnderTest, config: SandboxConfig, during: str
) -> None:
    from numpy_task import run, solve, ticks

    async def kill(sandbox: Sandbox) -> float:
        container = engine.client.containers.get(f"agentix-{sandbox.sandbox_id}")
        await asyncio.to_thread(container.kill)
        return time.monotonic()

    async def scenario() -> None:
        async with engine.provider().session(config, timeout=None) as sandbox:
            await sandbox.remote(solve, 8)
            if during == "a stream":
                stream = sandbox.remote(ticks, 0.05)
                assert [await anext(stream) for _ in range(3)] == [0, 1, 2]
                killed = await kill(sandbox)
                with pytest.raises(RuntimeUnreachable):
                    async for _ in stream:
                        pass
            else:
                call = asyncio.create_task(sandbox.remote(run, ["/bin/sleep", "50"]))
                await asyncio.wait([call], timeout=0.3 if during == "an inline call" else 3)
                killed = await kill(sandbox)
                with pytest.raises(RuntimeUnreachable):
                    await call
            assert time.monotonic() - killed < 3
            with pytest.raises(RuntimeUnreachable):
                await sandbox.remote(solve, 8)
            assert time.monotonic() - killed < 4

    asyncio.run(scenario())
