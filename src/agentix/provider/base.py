"""What a provider implements, and what it is given: the import path for everything about that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agentix.findings import Finding
from agentix.provider.config import SandboxConfig, SandboxResource
from agentix.provider.deploy import BundleDeployer, DeployedBundle
from agentix.provider.listing import ListedSandbox, Pruned, prune, recorded
from agentix.provider.owner import Owner
from agentix.provider.sandbox import Sandbox, SandboxId, SandboxInfo
from agentix.provider.signals import sigterm_held_back
from agentix.provider.teardown import carry_out, undone_on_error

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Iterable

__all__ = [
    "BundleDeployer",
    "DeployedBundle",
    "Finding",
    "ListedSandbox",
    "Owner",
    "Pruned",
    "Sandbox",
    "SandboxConfig",
    "SandboxId",
    "SandboxInfo",
    "SandboxProvider",
    "SandboxResource",
]

_CLOSE_BOUND = 30.0  # seconds; what closing the connection may take


class SandboxProvider(ABC):
    """Where sandboxes come from: implement ``create``, ``delete`` and ``get``.

    ``name`` is what the ids of its sandboxes begin with, as given to ``RuntimeFolder.create``. A
    provider that keeps none of those has no name, and lists its sandboxes itself.
    """

    name: str = ""

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

    async def list(self) -> builtins.list[ListedSandbox]:
        """Return this user's sandboxes, of every process, and what is left of them.

        Raises ProviderError when the backend does not answer.
        """
        return await recorded(self)

    async def prune(self, *, running: bool = False, dry_run: bool = False) -> Pruned:
        """Remove the sandboxes that have ended and whose owner is gone.

        With *running* also those that run though their owner is gone, and those that have ended and
        whose owner cannot be told from here. What a living process owns stays. With *dry_run* this
        only says what it would remove. Raises what ``list`` raises.
        """
        return await prune(self, running=running, dry_run=dry_run)

    def diagnose(self) -> Iterable[Finding]:
        """Say how this machine suits the provider: ``agentix doctor`` shows it.

        A ``"problem"`` is what keeps it from making sandboxes. Nothing is changed, started or
        fetched. It may block for a few seconds, in a thread of its own; what it raises is a
        problem, too.
        """
        return (Finding("ok", "is installed, and does not say more"),)

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
        is raised, and carries a note when the deletion failed as well. SIGTERM, where nobody else
        handles it, cancels the task and ends the process after that.
        """
        within = _CLOSE_BOUND + self.delete_bound
        async with sigterm_held_back(within):
            sandbox = await self.create(config)

            async def end() -> None:
                try:
                    await sandbox.aclose()
                finally:
                    await self.delete(sandbox.sandbox_id)

            what = f"deleting sandbox {sandbox.sandbox_id}"
            async with undone_on_error(end, what=what, within=within):
                sandbox.configure(timeout=timeout, http_sync_ms=http_sync_ms)
                yield sandbox
            await carry_out(end(), what=what, within=within)
