"""Bring the tarballs of npm tools, from the registry that their user has configured."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentix.build.download import Gone, download, shown
from agentix.build.npm.package import Wanted
from agentix.build.npm.registry import NotThere, open_registry
from agentix.errors import FetchError, LockError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from agentix.build.artifact import Artifact
    from agentix.build.fetch.arrivals import Arrivals
    from agentix.build.npm.registry import Registry
    from agentix.patience import Patience
    from agentix.progress import Step


async def bring_tarballs(
    files: Collection[Artifact],
    waiting: Arrivals,
    project: Path,
    step: Step,
    patience: Patience,
    turns: asyncio.Semaphore,
) -> None:
    """Download *files* to where they wait, with the npm settings of the folder *project*.

    FetchError says what cannot be had, or is not what was locked.
    """
    if not files:
        return
    try:
        async with open_registry(project, patience) as registry, asyncio.TaskGroup() as group:
            for file in files:
                group.create_task(_one(registry, file, waiting, step, patience, turns))
    except LockError as error:  # the settings
        raise FetchError(str(error)) from error


async def _one(
    registry: Registry,
    file: Artifact,
    waiting: Arrivals,
    step: Step,
    patience: Patience,
    turns: asyncio.Semaphore,
) -> None:
    place = waiting.place(file)
    async with turns:
        await asyncio.to_thread(place.parent.mkdir, exist_ok=True)
        try:
            release = await registry.release(Wanted(file.package, file.version))
        except NotThere as error:
            raise FetchError(f"cannot fetch {file.file}: {error}; lock another version") from error
        except LockError as error:
            raise FetchError(str(error)) from error
        try:
            await download(
                registry.session,
                release.address,
                file,
                place,
                advance=step.advance,
                patience=patience,
            )
        except Gone as error:
            raise FetchError(
                f"{release.package} is listed at npm but gone from {shown(release.address)}; "
                "lock another version"
            ) from error
