"""What a sandbox cannot be made of, and how that is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stub_runtime import host, make_entry

from agentix import platforms
from agentix.errors import BundleError, ImageError, ProviderError
from agentix.provider.base import SandboxConfig, SandboxResource
from agentix.provider.bubblewrap import BubblewrapProvider, BubblewrapProviderConfig

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.bubblewrap


async def test_limits_that_cannot_be_enforced_are_refused(bundle: Path) -> None:
    config = SandboxConfig(
        image="host", bundle=bundle, resource=SandboxResource(memory="1g", cpu=1)
    )
    with pytest.raises(ProviderError, match="cannot limit cpu or memory"):
        await BubblewrapProvider().create(config)


def other_platform() -> str:
    return next(name for name in platforms.PLATFORMS if name != platforms.current().name)


async def test_a_bundle_for_another_platform_is_refused_naming_both(tmp_path: Path) -> None:
    bundle = make_entry(tmp_path, for_platform=other_platform())
    with pytest.raises(BundleError) as caught:
        await BubblewrapProvider().create(host(bundle))
    assert other_platform() in str(caught.value)
    assert platforms.current().name in str(caught.value)
    wanted = SandboxConfig(image="host", bundle=bundle, platform=other_platform())
    with pytest.raises(ProviderError, match="this machine is"):
        await BubblewrapProvider().create(wanted)


async def test_an_image_for_another_platform_is_known_by_its_programs(
    bundle: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    machine = {"linux/arm64": 183, "linux/amd64": 62}[other_platform()]
    header = b"\x7fELF\2\1\1" + bytes(9) + b"\2\0" + machine.to_bytes(2, "little") + bytes(44)
    (root / "bin/sh").write_bytes(header)
    with pytest.raises(ImageError) as caught:
        await BubblewrapProvider().create(SandboxConfig(image=str(root), bundle=bundle))
    assert other_platform() in str(caught.value)
    assert platforms.current().name in str(caught.value)


@pytest.mark.parametrize(
    ("link", "target", "reason"),
    [
        ("nix", "/oldroot/etc", "/nix that is no folder"),
        ("proc", "etc", "/proc that is no folder"),
        ("dev", "../../outside", "/dev that is no folder"),
    ],
)
async def test_an_image_in_the_way_is_refused(
    bundle: Path, tmp_path: Path, link: str, target: str, reason: str
) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / link).symlink_to(target)
    with pytest.raises(ImageError, match=reason):
        await BubblewrapProvider().create(SandboxConfig(image=str(root), bundle=bundle))


async def test_links_in_an_image_do_not_lead_bubblewrap_to_the_host(
    bundle: Path, tmp_path: Path
) -> None:
    """bubblewrap sees the host as /oldroot while it makes folders and files."""
    victim = tmp_path / "victim"
    victim.mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "etc").symlink_to(f"/oldroot{victim}")
    with pytest.raises(ProviderError):
        await BubblewrapProvider().create(SandboxConfig(image=str(root), bundle=bundle))
    assert list(victim.iterdir()) == []


async def test_a_missing_image_and_a_missing_bundle_are_told_apart(bundle: Path) -> None:
    provider = BubblewrapProviderConfig(pull="never").to_provider()
    with pytest.raises(ImageError, match="image python:3 is not"):
        await provider.create(SandboxConfig(image="python:3", bundle=bundle))
    with pytest.raises(BundleError, match=r"missing\.tar"):
        await BubblewrapProvider().create(SandboxConfig(image="host", bundle="missing.tar"))
