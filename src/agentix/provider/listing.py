"""Which sandboxes there are, whose, and which of them nobody will take away any more."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from agentix.errors import ProviderError, SandboxNotFound
from agentix.provider.runtime_folder import FORGOTTEN, RuntimeFolder, sweep

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from agentix.provider.base import SandboxProvider
    from agentix.provider.owner import Owner
    from agentix.provider.sandbox import SandboxId, SandboxStatus

_AT_ONCE = 8  # what an engine deletes side by side without each taking longer


@dataclass(frozen=True, slots=True)
class ListedSandbox:
    """One sandbox as ``list`` shows it.

    ``image`` and ``created`` are None where no record says them. ``owner`` is the process that made
    it; ``abandoned`` says that this is known to be gone.
    """

    sandbox_id: SandboxId
    provider: str
    image: str | None
    status: SandboxStatus
    created: datetime | None
    owner: Owner | None
    abandoned: bool

    def prunable(self, *, running: bool) -> bool:
        """Tell whether ``prune`` takes it: what has a living owner is that one's to delete.

        Also one whose owner cannot be told, or that runs, if *running*; but never both.
        """
        if self.abandoned:
            return running or self.status == "exited"
        unknown = self.owner is None or self.owner.lives() is None
        return running and unknown and self.status == "exited"


@dataclass(frozen=True, slots=True)
class Pruned:
    """What ``prune`` did: those that are gone, and those that stayed, with the reason."""

    removed: tuple[ListedSandbox, ...]
    failed: tuple[tuple[ListedSandbox, ProviderError], ...] = ()


async def list_recorded(
    provider: str, status: Callable[[RuntimeFolder], Awaitable[SandboxStatus]]
) -> list[ListedSandbox]:
    """Return the sandboxes of *provider* that have a folder here, sorted.

    *status* is asked about those that were made whole. Those that a living process is just making
    are left out.
    """
    found = []
    for folder in await asyncio.to_thread(RuntimeFolder.all, provider):
        listed = await _look(folder, status)
        if listed is not None:
            found.append(listed)
    return in_order(found)


async def recorded(provider: SandboxProvider) -> list[ListedSandbox]:
    """Return those of *provider*; one of which it gives a handle runs."""

    async def status(folder: RuntimeFolder) -> SandboxStatus:
        try:
            sandbox = await provider.get(folder.sandbox_id)
        except SandboxNotFound:
            return "exited"
        except ProviderError:
            return "running"  # for all that is known here
        await sandbox.aclose()
        return "running"

    return await list_recorded(provider.name, status)


def in_order(found: Iterable[ListedSandbox]) -> list[ListedSandbox]:
    """Return them sorted: those of unknown age first, then the oldest."""
    never = datetime.fromtimestamp(0, UTC)
    return sorted(found, key=lambda each: (each.created or never, each.sandbox_id))


async def prune(provider: SandboxProvider, *, running: bool, dry_run: bool) -> Pruned:
    """Do what :meth:`SandboxProvider.prune` promises."""
    chosen = [each for each in await provider.list() if each.prunable(running=running)]
    if dry_run:
        return Pruned(tuple(chosen))
    removed: list[ListedSandbox] = []
    failed: list[tuple[ListedSandbox, ProviderError]] = []
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def delete(each: ListedSandbox) -> None:
        try:
            async with at_once:
                await provider.delete(each.sandbox_id)
                await asyncio.to_thread(_remove_folder, each)
        except ProviderError as error:
            failed.append((each, error))
        except Exception as error:  # a provider that breaks its promise, to one sandbox only
            told = f"deleting sandbox {each.sandbox_id} raised {type(error).__name__}: {error}"
            failed.append((each, ProviderError(told)))
        else:
            removed.append(each)

    async with asyncio.TaskGroup() as group:
        for each in chosen:
            group.create_task(delete(each))
    await asyncio.to_thread(sweep)
    return Pruned(tuple(in_order(removed)), tuple(failed))


async def _look(
    folder: RuntimeFolder, status: Callable[[RuntimeFolder], Awaitable[SandboxStatus]]
) -> ListedSandbox | None:
    record = folder.read_record()
    if record is None:
        listens = folder.listens()
        forgotten = folder.touched() < time.time() - FORGOTTEN
        if not listens and not forgotten:
            return None  # about to get one, or just gone
        return ListedSandbox(
            folder.sandbox_id,
            folder.provider,
            image=None,
            status="running" if listens else "exited",
            created=None,
            owner=None,
            abandoned=not listens,
        )
    abandoned = record.owner.lives() is False
    if record.facts is None and not abandoned:
        return None
    return ListedSandbox(
        folder.sandbox_id,
        folder.provider,
        image=record.image or None,
        status="exited" if record.facts is None else await status(folder),
        created=record.created,
        owner=record.owner,
        abandoned=abandoned,
    )


def _remove_folder(listed: ListedSandbox) -> None:
    """Remove the folder of a sandbox of which the provider knows too little to delete it."""
    for folder in RuntimeFolder.all(listed.provider):
        if folder.sandbox_id == listed.sandbox_id:
            folder.remove()
