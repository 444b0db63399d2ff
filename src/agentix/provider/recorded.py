"""Sandboxes that are processes of this machine, by their record: in whichever process of the user.

What a provider has recorded of one is :meth:`~agentix.provider.kit.SandboxProcesses.facts`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentix.errors import ProviderError, SandboxNotFound
from agentix.provider.hosted import settled
from agentix.provider.processes import SandboxProcesses
from agentix.provider.runtime_folder import RuntimeFolder
from agentix.provider.sandbox import Sandbox, SandboxInfo
from agentix.provider.teardown import carry_out

if TYPE_CHECKING:
    from agentix.provider.sandbox import SandboxId


def handle(folder: RuntimeFolder) -> Sandbox:
    """Return a handle of the sandbox of *folder*, which runs."""
    info = SandboxInfo(folder.sandbox_id, folder.url, "running")
    return Sandbox(info, token=folder.token)


def get_recorded(sandbox_id: SandboxId, provider: str) -> Sandbox:
    """Return a handle of a sandbox of *provider* that lives; SandboxNotFound when it does not."""
    folder, facts = RuntimeFolder.find(sandbox_id, provider)
    if not SandboxProcesses.parse(facts).first.runs():
        raise SandboxNotFound(f"sandbox {sandbox_id} has ended; delete it to tidy up")
    return handle(folder)


async def delete_recorded(
    sandbox_id: SandboxId, provider: str, *, grace: float, within: float
) -> None:
    """End a sandbox of *provider* and remove its folder; nothing happens when it is gone already.

    It is asked to end, and killed after *grace* seconds. Raises ProviderError when that is not done
    *within* so many.
    """
    try:
        folder, facts = RuntimeFolder.find(sandbox_id, provider)
    except SandboxNotFound:
        return

    async def end() -> None:
        processes = SandboxProcesses.parse(facts)
        try:
            await processes.stop(grace)
        except OSError as error:  # no descriptors, or somebody else's process
            raise ProviderError(f"cannot end sandbox {sandbox_id}: {error}") from error
        await settled(processes.launcher)
        await asyncio.to_thread(folder.remove)

    await carry_out(end(), what=f"deleting sandbox {sandbox_id}", within=within)
