"""Sandboxes that are processes of this machine, by their record: in whichever process of the user.

What a provider has recorded of one is :meth:`~agentix.provider.kit.SandboxProcesses.facts`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from agentix.errors import ProviderError, SandboxNotFound
from agentix.provider.hosted import settled
from agentix.provider.processes import SandboxProcesses
from agentix.provider.runtime_folder import RuntimeFolder, sweep
from agentix.provider.sandbox import Sandbox, SandboxInfo
from agentix.provider.teardown import carry_out

if TYPE_CHECKING:
    from agentix.provider.sandbox import SandboxId

AGAIN: Final = 300.0
"""Seconds after which a process looks for leftovers again."""

_ENOUGH: Final = 60.0
"""Seconds after which it takes up no further one; those are for the next time."""

_log = logging.getLogger("agentix.provider")
_looked: dict[str, float] = {}


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


def remove_leftovers(provider: str) -> None:
    """Begin to remove what the sandboxes of *provider* have left whose owner is known to be gone.

    What runs, has no record or a living owner stays, as with a plain ``prune``. A thread does it
    that nobody waits for; a failure is logged and changes nothing.
    """
    now = time.monotonic()
    if now - _looked.get(provider, -AGAIN) < AGAIN:
        return
    _looked[provider] = now
    name = f"agentix-leftovers-{provider}"
    with suppress(RuntimeError):  # no threads: whoever makes a sandbox will hear of that
        threading.Thread(target=_remove_leftovers, args=(provider,), name=name, daemon=True).start()


def _remove_leftovers(provider: str) -> None:
    # A signal that arrives here would not wake the main thread, which is to handle it.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    end = time.monotonic() + _ENOUGH
    for folder in RuntimeFolder.all(provider):
        if time.monotonic() > end:
            break
        try:
            _remove_if_left(folder)
        except (ProviderError, OSError) as error:
            _log.warning("what is left of sandbox %s stays there: %s", folder.sandbox_id, error)
    with suppress(OSError):
        sweep()


def _remove_if_left(folder: RuntimeFolder) -> None:
    record = folder.read_record()
    if record is None or record.owner.lives() is not False:
        return
    if record.facts is not None:
        try:
            processes = SandboxProcesses.parse(record.facts)
        except ProviderError:
            return  # it may run, for all that is known here
        if processes.first.runs():
            return
        asyncio.run(asyncio.wait_for(processes.stop(0), _ENOUGH))  # what helped it may be there
    folder.remove()
