"""An image that the engine does not have is pulled, with patience where patience helps."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from heard import Heard
from images import image
from images.bundles import bundle_that_runs
from images.registry import NAME, Registry

from agentix.errors import ImageError, ProviderError
from agentix.provider.base import SandboxConfig

if TYPE_CHECKING:
    from pathlib import Path

    from engines import EngineUnderTest
    from images import TaskImage


async def create(
    engine: EngineUnderTest, registry: Registry, bundle: Path, reference: str, heard: Heard
) -> None:
    """Try to create a sandbox whose runtime says which image it is in, and exits."""
    async with registry.serving():
        config = SandboxConfig(image=reference.format(port=registry.port), bundle=str(bundle))
        await engine.provider(progress=heard).create(config)


@pytest.mark.parametrize("status", [429, 502, 503])
def test_a_registry_that_is_unwell_for_a_moment_is_asked_again(
    engine: EngineUnderTest, tmp_path: Path, status: int
) -> None:
    registry = Registry(image("busybox"), tmp_path, failures=2, status=status)
    bundle = bundle_that_runs("/bin/env; echo pulled and started; exit 9", tmp_path)
    heard = Heard()
    try:
        with pytest.raises(ProviderError, match="pulled and started"):
            asyncio.run(create(engine, registry, bundle, f"127.0.0.1:{{port}}/{NAME}:1", heard))
    finally:
        engine.client.images.remove(registry.reference, force=True)
    assert registry.pulls == 3
    assert heard.steps == [f"pull {registry.reference}"]


def test_a_registry_that_stays_unwell_is_given_up(engine: EngineUnderTest, tmp_path: Path) -> None:
    registry = Registry(image("busybox"), tmp_path, failures=99, status=502)
    bundle = bundle_that_runs("exit 1", tmp_path)
    with pytest.raises(ImageError, match=r"cannot be pulled: .*502"):
        asyncio.run(create(engine, registry, bundle, f"127.0.0.1:{{port}}/{NAME}:1", Heard()))
    assert registry.pulls == 3


@pytest.mark.parametrize("reference", [f"{NAME}:2", "agentix-test/other:1"])
def test_an_image_that_the_registry_does_not_have_fails_at_once(
    engine: EngineUnderTest, tmp_path: Path, reference: str
) -> None:
    registry = Registry(image("busybox"), tmp_path)
    bundle = bundle_that_runs("exit 1", tmp_path)
    with pytest.raises(ImageError, match="is not on this machine and cannot be pulled"):
        asyncio.run(create(engine, registry, bundle, f"127.0.0.1:{{port}}/{reference}", Heard()))
    assert registry.pulls == 1  # not tried again


def test_a_private_registry_wants_the_users_own_login(
    engine: EngineUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    bundle = bundle_that_runs("/bin/env; echo pulled and started; exit 9", tmp_path)

    async def twice() -> None:
        registry = Registry(image("busybox"), tmp_path, private=True)
        async with registry.serving():
            config = SandboxConfig(image=registry.reference, bundle=str(bundle))
            with pytest.raises(ImageError, match=rf"cannot be pulled: .*{engine.kind} login"):
                await engine.provider().create(config)
            # As `docker login` writes it.
            (tmp_path / "config.json").write_text(registry.login())
            try:
                with pytest.raises(ProviderError, match="pulled and started"):
                    await engine.provider().create(config)
            finally:
                engine.client.images.remove(registry.reference, force=True)

    asyncio.run(twice())


def unknown_image(rootfs: Path) -> TaskImage:
    """Return an image that has nothing in common with any that the engine has."""
    rootfs.mkdir()
    (rootfs / "unique").write_bytes(os.urandom(1000))
    return replace(image("busybox"), rootfs=rootfs)


def test_a_pull_that_is_stuck_can_be_cancelled(engine: EngineUnderTest, tmp_path: Path) -> None:
    bundle = bundle_that_runs("exit 1", tmp_path)

    async def cancel() -> float:
        stuck = asyncio.Event()
        registry = Registry(unknown_image(tmp_path / "rootfs"), tmp_path, stuck=stuck)
        reference = f"127.0.0.1:{{port}}/{NAME}:1"
        task = asyncio.create_task(create(engine, registry, bundle, reference, Heard()))
        await asyncio.wait_for(stuck.wait(), 30)
        begun = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - begun

    assert asyncio.run(cancel()) < 3
