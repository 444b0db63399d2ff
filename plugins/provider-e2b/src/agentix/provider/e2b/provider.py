"""The stub: everything that can be checked is, and nothing is sent anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from agentix.errors import ProviderError
from agentix.provider.base import Finding, Sandbox, SandboxConfig, SandboxId, SandboxProvider
from agentix.provider.e2b.config import E2bProviderConfig
from agentix.provider.kit import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agentix.provider.base import DeployedBundle


class NotYet(ProviderError, NotImplementedError):  # noqa: N818 - it says what it is
    """The configuration is sound; the provider is a stub."""


class E2bProvider(SandboxProvider):
    """Would make sandboxes on E2B; says what its configuration lacks, or that it cannot yet."""

    def __init__(self, config: E2bProviderConfig | None = None) -> None:
        self.config = config or E2bProviderConfig()

    def diagnose(self) -> Iterable[Finding]:
        """Say that it cannot make any yet, and what its configuration lacks."""
        try:
            self.config.complete()
        except ProviderError as error:
            yield Finding("problem", f"a stub so far, and {error}")
        else:
            yield Finding("problem", "a stub so far, which only checks its configuration")

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Check the configuration; then raise NotYet."""
        self._refuse(f"make a sandbox of image {quoted(config.image)}")

    async def delete(self, sandbox_id: SandboxId) -> None:
        """Check the configuration; then raise NotYet."""
        self._refuse(f"delete sandbox {sandbox_id!r}")

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Check the configuration; then raise NotYet."""
        self._refuse(f"find sandbox {sandbox_id!r}")

    async def deploy_bundle(
        self, path: Path, *, name: str | None = None, platform: str | None = None
    ) -> DeployedBundle:
        """Check the configuration; then raise NotYet."""
        self._refuse(f"deploy {str(path)!r}")

    def _refuse(self, what: str) -> NoReturn:
        self.config.complete()
        raise NotYet(
            f"e2b cannot {what}: this provider is a stub so far, which only checks its "
            "configuration; use docker, podman or bubblewrap"
        )
