"""Bringing a bundle to where a provider's sandboxes find it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from agentix.bundle import BundleCache
from agentix.progress import SILENT

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.progress import Progress
    from agentix.provider.base import SandboxProvider


@dataclass(frozen=True, slots=True)
class DeployedBundle:
    """A bundle where a provider can use it.

    ``bundle`` is what ``SandboxConfig.bundle`` takes. ``hints`` maps a label to a command that
    inspects or removes what was deployed.
    """

    bundle: str
    platform: str
    metadata: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)


@runtime_checkable
class BundleDeployer(Protocol):
    """What a provider implements when its sandboxes do not see this machine's bundle cache."""

    async def deploy_bundle(
        self, path: Path, *, name: str | None = None, platform: str | None = None
    ) -> DeployedBundle:
        """Bring the bundle at *path* to the backend, under *name* where it has names.

        Raises BundleError when the bundle is not sound or not for *platform*, ProviderError when
        the backend refuses it.
        """
        ...


async def deploy_locally(
    bundle: Path,
    *,
    name: str | None = None,
    platform: str | None = None,
    progress: Progress = SILENT,
) -> DeployedBundle:
    """Deploy to this machine's bundle cache, where bubblewrap and local engines mount it from.

    Raises BundleError when the bundle is not sound or not for *platform*.
    """
    entry = await asyncio.to_thread(BundleCache().open, bundle, progress=progress)
    if platform is not None:
        entry.check_platform(platform)
    metadata = {
        "name": name or entry.manifest.name,
        "version": entry.manifest.version,
        "digest": f"sha256:{entry.digest}",
        "python": entry.manifest.python,
        "libc": entry.manifest.libc,
    }
    return DeployedBundle(
        bundle=str(entry.path), platform=entry.manifest.platform, metadata=metadata
    )


async def deploy(
    provider: type[SandboxProvider],
    bundle: Path,
    *,
    name: str | None = None,
    platform: str | None = None,
    progress: Progress = SILENT,
) -> DeployedBundle:
    """Deploy with *provider* if it has a way of its own, else to this machine's bundle cache.

    Raises what :meth:`BundleDeployer.deploy_bundle` and :func:`deploy_locally` raise.
    """
    if issubclass(provider, BundleDeployer):
        return await provider().deploy_bundle(bundle, name=name, platform=platform)
    return await deploy_locally(bundle, name=name, platform=platform, progress=progress)
