"""What a provider implements, and what it is given: the import path for everything about that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agentix.provider.config import SandboxConfig, SandboxResource
from agentix.provider.deploy import BundleDeployer, DeployedBundle
from agentix.provider.sandbox import Sandbox, SandboxId, SandboxInfo
from agentix.provider.teardown import carry_out, undone_on_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = [
    "BundleDeployer",
    "DeployedBundle",
    "Sandbox",
    "SandboxConfig",
    "SandboxId",
    "SandboxInfo",
    "SandboxProvider",
    "SandboxResource",
]

_CLOSE_BOUND = 30.0  # seconds; what closing the connection may take


class SandboxProvider(ABC):
    """Where sandboxes come from: implement ``create``, ``delete`` and ``get``."""

    @abstractmethod
    async def create(self, config: SandboxConfig) -> Sandbox:
        """Return a new sandbox that answers.

        A failed or cancelled ``create`` leaves nothing behind. Raises ImageError, BundleError, or
        ProviderError when the backend fails or cannot do what *config* asks for.
        """

    @abstractmethod
    async def delete(self, sandbox_id: SandboxId) -> None:
        """End the sandbox and remove all of it; nothing happens when it is gone already.

        Raises ProviderError when something stays behind.
        """

    @abstractmethod
    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Return a handle of a sandbox that lives; SandboxNotFound when it does not."""

    @property
    def delete_bound(self) -> float:
        """How many seconds ``delete`` may take; a session gives up a while after that."""
        return 60.0

    @asynccontextmanager
    async def session(
        self,
        config: SandboxConfig,
        *,
        timeout: float | None = 300,  # noqa: ASYNC109 - of the calls
        http_sync_ms: int | None = 1000,
    ) -> AsyncIterator[Sandbox]:
        """Yield a new sandbox, and delete it at the end; the knobs are those of its calls.

        It is deleted on success, on an error and on cancellation; the first error is the one that
        is raised, and carries a note when the deletion failed as well.
        """
        sandbox = await self.create(config)

        async def end() -> None:
            try:
                await sandbox.aclose()
            finally:
                await self.delete(sandbox.sandbox_id)

        what = f"deleting sandbox {sandbox.sandbox_id}"
        within = _CLOSE_BOUND + self.delete_bound
        async with undone_on_error(end, what=what, within=within):
            sandbox.configure(timeout=timeout, http_sync_ms=http_sync_ms)
            yield sandbox
        await carry_out(end(), what=what, within=within)
