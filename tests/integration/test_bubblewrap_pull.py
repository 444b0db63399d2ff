"""An image of a registry on bubblewrap: fetched, unpacked, and lived in, or given up half way."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from images.debian import ImagesUnavailable
from images.registry import Published, Registry, program

from agentix import SandboxConfig
from agentix.provider.bubblewrap import BubblewrapProvider, BubblewrapProviderConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from images import TaskImage

    from agentix.bundle import CachedBundle

pytestmark = [pytest.mark.bubblewrap, pytest.mark.nix]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed (tools/setup.sh tests installs it)")
    try:
        program()
    except ImagesUnavailable as error:
        pytest.skip(f"there is no registry here: {error}")
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))


def provider(registry: Registry) -> BubblewrapProvider:
    config = BubblewrapProviderConfig(insecure_registries=(registry.address,))
    return config.to_provider()


async def test_a_sandbox_is_made_of_an_image_of_a_registry(
    numpy_bundle: CachedBundle, task_image: Callable[[str], TaskImage], tmp_path: Path
) -> None:
    from numpy_task import run, solve

    busybox = task_image("busybox")
    task = replace(busybox, config=replace(busybox.config, user="4321", workdir="/work"))
    async with Registry(Published.of(task, tmp_path), tmp_path).serving() as registry:
        config = SandboxConfig(image=registry.reference, bundle=numpy_bundle.path)
        async with provider(registry).session(config, timeout=60) as sandbox:
            assert list(await sandbox.remote(solve, 4)) == pytest.approx([1.0] * 4)
            output = await sandbox.remote(run, ["sh", "-c", "id -u; pwd"])
    assert output.stdout.split() == ["4321", "/work"]


async def test_a_create_that_is_cancelled_while_it_fetches_leaves_nothing(
    numpy_bundle: CachedBundle, task_image: Callable[[str], TaskImage], tmp_path: Path
) -> None:
    stuck = asyncio.Event()
    image = Published.of(task_image("busybox"), tmp_path)
    async with Registry(image, tmp_path, stuck=stuck).serving() as registry:
        config = SandboxConfig(image=registry.reference, bundle=numpy_bundle.path)
        creating = asyncio.create_task(provider(registry).create(config))
        await asyncio.wait_for(stuck.wait(), 60)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
    assert list((tmp_path / "cache/staging").iterdir()) == []
    assert list((tmp_path / "cache/images").glob("sha256-*")) == []
