from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stub_runtime import make_entry

from agentix import platforms
from agentix.errors import BundleError
from agentix.provider.base import BundleDeployer, DeployedBundle, SandboxProvider
from agentix.provider.bubblewrap import BubblewrapProvider
from agentix.provider.deploy import deploy

if TYPE_CHECKING:
    from pathlib import Path


class Remote(SandboxProvider):
    """A provider with a place of its own for bundles."""

    async def create(self, config):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    delete = get = create

    async def deploy_bundle(
        self, path: Path, *, name: str | None = None, platform: str | None = None
    ) -> DeployedBundle:
        hints = {"remove": f"remote rm {name}"}
        return DeployedBundle(f"remote:{name}", platform or "?", {"from": str(path)}, hints)


async def test_a_provider_with_a_place_of_its_own_deploys_there(tmp_path: Path) -> None:
    assert issubclass(Remote, BundleDeployer)
    deployed = await deploy(Remote, tmp_path / "x.tar", name="n", platform="linux/arm64")
    assert deployed == DeployedBundle(
        "remote:n", "linux/arm64", {"from": f"{tmp_path}/x.tar"}, {"remove": "remote rm n"}
    )


async def test_any_other_provider_finds_bundles_in_the_cache_of_this_machine(
    tmp_path: Path,
) -> None:
    entry = make_entry(tmp_path)
    deployed = await deploy(BubblewrapProvider, entry)
    assert deployed.bundle == str(entry)
    assert deployed.platform == platforms.current().name
    assert deployed.metadata["name"] == "stub"


async def test_a_bundle_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_text("not a bundle")
    with pytest.raises(BundleError, match=r"x\.tar"):
        await deploy(BubblewrapProvider, tmp_path / "x.tar")
