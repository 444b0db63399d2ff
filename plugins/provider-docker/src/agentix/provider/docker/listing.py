"""Which sandboxes there are: those with a record here, and containers that have only labels.

A container outlives its record when the user's runtime folder is cleared, as at the end of a login.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from agentix.errors import ProviderError
from agentix.provider.base import ListedSandbox, Owner, SandboxId
from agentix.provider.docker import container, service
from agentix.provider.docker.address import Address, locate
from agentix.provider.docker.engine import Engine
from agentix.provider.docker.facts import ENDED
from agentix.provider.docker.problems import HOSTS
from agentix.provider.docker.threads import finished
from agentix.provider.kit import RuntimeFolder, in_order, list_recorded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentix.provider.docker.address import Kind


@dataclass(frozen=True, slots=True)
class Container:
    """What an engine lists of a container that is a sandbox; None where a label makes no sense."""

    running: bool
    image: str | None
    created: datetime | None
    owner: Owner | None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Container:
        """Read an entry of the engine's list."""
        labels = found["Labels"]
        try:
            created = datetime.fromisoformat(labels.get(container.STARTED, ""))
        except ValueError:
            created = None
        return cls(
            running=found["State"] not in ENDED,
            image=labels.get(container.IMAGE),
            created=created if created and created.tzinfo else None,
            owner=Owner.parse(labels.get(container.PROCESS, "")),
        )


Containers = dict[str, Container]


async def sandboxes(kind: Kind) -> list[ListedSandbox]:
    """Return this user's, of the engine that is in use and of those that records name.

    Raises ProviderError when the former does not answer, unless nothing was ever made there; and
    when it was chosen by a variable, so as not to pass for one that has nothing. What another that
    does not answer may have counts as running.
    """
    folders = await asyncio.to_thread(RuntimeFolder.all, kind)
    engines = {folder.sandbox_id: _engine(folder) for folder in folders}
    chosen = not folders and bool(os.environ.get(HOSTS[kind]))
    here = await _located(kind, needed=bool(folders), chosen=chosen)
    answers: dict[str, Containers | None] = {}
    addresses = {each.url: each for each in engines.values() if each is not None}
    if here is not None:
        answers[here.url] = await _ask(here, needed=chosen or here.url in addresses)
    for url in addresses.keys() - answers.keys():
        answers[url] = await _ask(addresses[url], needed=False)

    async def status(folder: RuntimeFolder) -> Literal["running", "exited"]:
        where = engines.get(folder.sandbox_id)
        containers = answers.get(where.url if where is not None else "")
        if containers is None:
            return "running"  # for all that is known here
        found = containers.get(folder.sandbox_id)
        return "running" if found is not None and found.running else "exited"

    listed = await list_recorded(kind, status)
    known = {each.sandbox_id for each in listed} | set(engines)
    unrecorded = (answers.get(here.url) if here else None) or {}
    listed += [
        _by_labels(kind, sandbox_id, found)
        for sandbox_id, found in unrecorded.items()
        if sandbox_id not in known and _is_ours(kind, sandbox_id, found)
    ]
    return in_order(listed)


def _engine(folder: RuntimeFolder) -> Address | None:
    record = folder.read_record()
    facts = (record and record.facts) or {}
    return Address.of(cast("Kind", folder.provider), facts) if "engine" in facts else None


async def _located(kind: Kind, *, needed: bool, chosen: bool) -> Address | None:
    try:
        where = await asyncio.to_thread(locate, kind)
    except ProviderError:
        if needed or chosen:
            raise
        return None
    # Not started merely to hear that it has nothing.
    idle = where.ours and not needed and not await asyncio.to_thread(service.listens, where.path)
    return None if idle else where


async def _ask(where: Address, *, needed: bool) -> Containers | None:
    engine = Engine(where)
    try:
        try:
            await finished(engine.connect)
            found = await finished(engine.labelled, container.SANDBOX)
        except ProviderError:
            if needed:
                raise
            return None
        named = ((each["Labels"][container.SANDBOX], each) for each in found)
        return {
            sandbox_id: Container.of(each)
            for sandbox_id, each in named
            # What empties its folder has the label too.
            if f"/{container.name(sandbox_id)}" in (each["Names"] or ())
        }
    finally:
        engine.close()


def _is_ours(kind: Kind, sandbox_id: str, found: Container) -> bool:
    return (
        found.owner is not None
        and found.owner.user == os.getuid()
        and re.fullmatch(rf"{kind}-[0-9a-f]+", sandbox_id) is not None
    )


def _by_labels(kind: Kind, sandbox_id: str, found: Container) -> ListedSandbox:
    return ListedSandbox(
        SandboxId(sandbox_id),
        kind,
        image=found.image,
        status="running" if found.running else "exited",
        created=found.created,
        owner=found.owner,
        abandoned=found.owner is not None and found.owner.lives() is False,
    )
