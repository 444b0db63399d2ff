"""Bundles and images for other machines: run where these are emulated, else refused clearly."""

from __future__ import annotations

import asyncio
import platform
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from emulation import NoEmulatorError, emulator, registered
from images import image
from images.bundled import numpy_task
from images.bundles import bundle_that_runs
from images.debian import ImagesUnavailable
from images.engine import loaded

from agentix import SandboxConfig
from agentix.errors import BundleError, ImageError, ProviderError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engines import EngineUnderTest
    from images import TaskImage
    from images.engine import Leftovers

    from agentix.bundle import CachedBundle

FOREIGN = "linux/arm64"


@pytest.fixture(scope="session")
def arm() -> TaskImage:
    """An image of one static program for arm64."""
    if platform.machine() == "aarch64":
        pytest.skip("to this machine, arm64 is nothing foreign")
    try:
        return image("busybox", "aarch64")
    except ImagesUnavailable as error:
        pytest.skip(f"task images cannot be made here: {error}")


@pytest.fixture(scope="session")
def arm_bundle(tmp_path_factory: pytest.TempPathFactory) -> CachedBundle:
    """A real bundle for arm64 with a native wheel and a tool, built on this machine."""
    return numpy_task(tmp_path_factory.mktemp("arm64"), FOREIGN)


@pytest.fixture
def emulated() -> Iterator[None]:
    try:
        with emulator():
            yield
    except NoEmulatorError as error:
        pytest.skip(f"{error}")


@pytest.mark.nix
@pytest.mark.slow
def test_a_sandbox_for_another_machine_runs_where_that_is_emulated(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    arm: TaskImage,
    arm_bundle: CachedBundle,
    emulated: None,
) -> None:
    import numpy_task as task

    async def ask(tag: str) -> tuple[str, list[float], str]:
        config = SandboxConfig(image=tag, bundle=str(arm_bundle.path), platform=FOREIGN)
        async with engine.provider(start_timeout=120).session(config) as sandbox:
            machine = await sandbox.remote(task.run, ["/bin/busybox", "uname", "-m"])
            solved = await sandbox.remote(task.solve, 3)
            tool = await sandbox.remote(task.run, ["jq", "-n", "40 + 2"])
            return machine.stdout.strip(), solved.round(6).tolist(), tool.stdout.strip()

    with loaded(engine.client, arm) as tag:
        assert asyncio.run(ask(tag)) == ("aarch64", [1.0, 1.0, 1.0], "42")


def test_a_sandbox_for_another_machine_is_refused_soon_where_nothing_emulates_it(
    engine: EngineUnderTest, leftovers: Leftovers, arm: TaskImage, tmp_path: Path
) -> None:
    if registered():
        pytest.skip("something emulates arm64 here")
    bundle = str(bundle_that_runs("sleep 1000", tmp_path, platform=FOREIGN, busybox=arm))
    with loaded(engine.client, arm) as tag:
        begun = time.monotonic()
        with pytest.raises(
            ProviderError, match=r"for linux/arm64, and .* runs linux/amd64"
        ) as caught:
            asyncio.run(engine.provider().create(SandboxConfig(image=tag, bundle=bundle)))
        assert time.monotonic() - begun < 10
    assert "\n" not in str(caught.value)
    assert "binfmt_misc" in str(caught.value)


def test_a_bundle_and_an_image_for_different_machines_are_refused_at_once(
    leftovers: Leftovers, engine: EngineUnderTest, busybox: str, tmp_path: Path
) -> None:
    ours = image("busybox").architecture
    other = "arm64" if ours == "amd64" else "amd64"
    native = str(bundle_that_runs("exit 1", tmp_path))
    foreign = str(bundle_that_runs("exit 1", tmp_path, platform=f"linux/{other}"))
    both = rf"(?s)linux/({ours}.*linux/{other}|{other}.*linux/{ours})"
    with loaded(engine.client, replace(image("busybox"), architecture=other)) as foreign_image:
        begun = time.monotonic()
        with pytest.raises(ImageError, match=both):
            asyncio.run(engine.provider().create(SandboxConfig(image=foreign_image, bundle=native)))
        with pytest.raises(ImageError, match=both):
            asyncio.run(engine.provider().create(SandboxConfig(image=busybox, bundle=foreign)))
        config = SandboxConfig(image=busybox, bundle=native, platform=f"linux/{other}")
        with pytest.raises(BundleError, match=both):
            asyncio.run(engine.provider().create(config))
        assert time.monotonic() - begun < 5
