"""An image whose programs all live in its own Nix store keeps them, on every provider.

The programs of the image are found by its PATH, as a task would find them, and run beside the
bundle's, whose store paths are read-only among those of the image.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from engines import ENGINES, docker_engine, podman_engine
from images.archives import write_oci_layout
from images.engine import loaded
from images.nixbuilt import NixBuilt

from agentix import SandboxConfig
from agentix.provider.bubblewrap import BubblewrapProvider, BubblewrapProviderConfig
from agentix.provider.docker import DockerProviderConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from images import TaskImage

    from agentix import SandboxProvider
    from agentix.bundle import CachedBundle

pytestmark = [pytest.mark.nix, pytest.mark.slow]

PROFILE = "/root/.nix-profile/bin:/run/current-system/sw/bin"


@pytest.fixture(scope="module")
def stored(numpy_bundle: CachedBundle, tmp_path_factory: pytest.TempPathFactory) -> NixBuilt:
    """Everything is found in the store: PATH, and /bin/sh, lead there."""
    return NixBuilt(numpy_bundle, tmp_path_factory.mktemp("stored"))


@pytest.fixture(scope="module")
def images(
    stored: NixBuilt, numpy_bundle: CachedBundle, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, TaskImage]:
    """Images by how one comes to their store: at once, or by links of a profile or a system."""
    profiled = NixBuilt(numpy_bundle, tmp_path_factory.mktemp("profiled"))
    profile = "nix/var/nix/profiles/default"
    links = {
        "bin/sh": "/root/.nix-profile/bin/sh",
        "root/.nix-profile": f"/{profile}",
        profile: profiled.profile,
        "run/current-system/sw": profiled.profile,
    }
    return {
        "store": stored.image(
            "nix-store",
            f"{stored.python}/bin:{stored.profile}/bin",
            {"bin/sh": f"{stored.profile}/bin/sh"},
        ),
        "profile": profiled.image("nix-profile", PROFILE, links),
    }


@pytest.fixture(params=[pytest.param("bubblewrap", marks=pytest.mark.bubblewrap), *ENGINES])
def opened(
    request: pytest.FixtureRequest, images: dict[str, TaskImage], tmp_path: Path
) -> Iterator[Callable[[str], tuple[str, str]]]:
    """Give an image by its name as a provider, by its own name, takes it."""
    with ExitStack() as cleanup:

        def as_image(name: str) -> tuple[str, str]:
            if request.param == "bubblewrap":
                archive = write_oci_layout(images[name], tmp_path / "image.tar", tag="nix:1")
                return request.param, str(archive)
            running = docker_engine if request.param == "docker" else podman_engine
            engine = cleanup.enter_context(running())
            return request.param, cleanup.enter_context(loaded(engine.client, images[name]))

        yield as_image


def choose(provider: str, *, read_only: bool) -> SandboxProvider:
    if provider == "bubblewrap":
        return BubblewrapProviderConfig(read_only=read_only).to_provider()
    choices = {"container_engine": provider, "read_only": read_only}
    return DockerProviderConfig.model_validate(choices).to_provider()


@pytest.mark.parametrize(("name", "read_only"), [("store", False), ("profile", True)])
async def test_an_image_built_by_nix_keeps_its_programs(
    name: str,
    read_only: bool,
    opened: Callable[[str], tuple[str, str]],
    images: dict[str, TaskImage],
    numpy_bundle: CachedBundle,
) -> None:
    from numpy_task import process, run, solve

    kind, image = opened(name)
    provider = choose(kind, read_only=read_only)
    config = SandboxConfig(image=image, bundle=numpy_bundle.path)
    async with provider.session(config, timeout=60) as sandbox:
        assert list(await sandbox.remote(solve, 4)) == pytest.approx([1.0] * 4)
        assert "/nix/store/" in (await sandbox.remote(process)).prefix

        async def shell(script: str) -> str:
            output = await sandbox.remote(run, ["sh", "-c", script])
            assert output.code == 0, output
            return str(output.stdout).strip()

        python = await shell("python3 -c 'import sys; print(sys.prefix)'")
        theirs = {path.name for path in (images[name].rootfs / "nix/store").iterdir()}
        assert python.rpartition("/")[2] in theirs
        found = await sandbox.remote(run, ["/bin/sh", "-c", "echo $0; ls /nix/store"])
        assert theirs | set(numpy_bundle.manifest.closure) == set(found.stdout.split()[1:])
        # The image's store is as writable as it was, the bundle's part of it is not.
        written = await shell("touch /nix/store/new 2>/dev/null || echo sealed; ls /nix/store")
        assert ("sealed" in written.split(), "new" in written.split()) == (read_only, not read_only)
        root = numpy_bundle.manifest.root
        assert await shell(f"touch /nix/store/{root}/x 2>/dev/null || echo sealed") == "sealed"
    if not read_only:  # what was written was written for that sandbox
        async with provider.session(config, timeout=60) as sandbox:
            listing = await sandbox.remote(run, ["ls", "/nix/store"])
            assert "new" not in listing.stdout.split()


@pytest.mark.bubblewrap
async def test_a_store_that_nobody_may_write_to_is_joined_with_the_bundles(
    images: dict[str, TaskImage], numpy_bundle: CachedBundle
) -> None:
    from numpy_task import run

    root = images["store"].rootfs
    (root / "nix/store").chmod(0o555)
    try:
        path = dict(images["store"].config.env)
        config = SandboxConfig(image=str(root), bundle=numpy_bundle.path, env=path)
        async with BubblewrapProvider().session(config, timeout=60) as sandbox:
            output = await sandbox.remote(run, ["sh", "-c", "python3 -c 'print(6 * 7)'; ls /nix"])
    finally:
        (root / "nix/store").chmod(0o755)
    assert output.stdout.split() == ["42", "run", "runtime", "store"], output
