"""Put everything a build starts from into the Nix store: the only step that uses the network.

Files arrive in the user's cache, are verified there and then handed to Nix. What is interrupted
goes on from there the next time; the cache keeps nothing that the store has.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix import nix, platforms
from agentix.build.fetch.arrivals import Arrivals, arrivals
from agentix.build.fetch.needs import Needs, needs, total_size
from agentix.build.lock.git import check_out
from agentix.bundle.nar import nar_hash
from agentix.errors import FetchError, LockError
from agentix.progress import SILENT, Progress, Step
from agentix.ungrouped import ungrouped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import aiohttp

    from agentix.build.artifact import Artifact
    from agentix.nix import Nix
    from agentix.patience import Patience

_AT_ONCE = 8  # downloads
_NAMED = 5  # artifacts that a message lists


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch brought: how many files and bytes, and how many files were there before."""

    files: int
    size: int
    present: int


def fetch_project(
    root: Path, *, platform: str | None = None, progress: Progress = SILENT
) -> Fetched:
    """Bring into the store everything that building the project in *root* needs.

    The project is locked first if it has no lock that fits.
    """
    from agentix.build.lock import current_lock
    from agentix.build.request import Request

    request = Request.of(root, platform=platform)
    store = nix.find()
    lock = current_lock(root, progress=progress)
    wanted = needs(lock, request.platform, platforms.current().name)
    return fetch(
        wanted,
        project=root,
        python=lock.python,
        thorough=True,
        progress=progress,
        store=store,
    )


def missing(needs: Needs, store: Nix, *, thorough: bool = False) -> Needs:
    """Return the part of *needs* that the store lacks.

    Looks for the paths, which costs next to nothing; when *thorough* also asks Nix whether each is
    whole, as one that was left behind by a power cut is not.
    """
    paths = {item: store.real(item.store_path) for item in needs.items}
    lacking = {item for item, path in paths.items() if not os.path.lexists(path)}
    if thorough and len(lacking) < len(paths):
        present = [path for item, path in paths.items() if item not in lacking]
        broken = set(nix.invalid(present, nix=store))
        lacking |= {item for item, path in paths.items() if path in broken}
    return Needs(
        files=tuple(file for file in needs.files if file in lacking),
        programs=tuple(program for program in needs.programs if program in lacking),
    )


def fetch(
    needs: Needs,
    *,
    project: Path,
    python: str,
    offline: bool = False,
    thorough: bool = False,
    progress: Progress = SILENT,
    patience: Patience | None = None,
    store: Nix | None = None,
) -> Fetched:
    """Bring what the store lacks of *needs* into it.

    *project* is the folder whose uv settings apply, *python* the minor version of the lock.
    Safe to interrupt, and to run several times at once. FetchError says what cannot be had.
    """
    store = store or nix.find()
    everything = len(needs.artifacts())
    if not missing(needs, store, thorough=thorough).artifacts():
        return Fetched(0, 0, everything)
    with arrivals() as waiting:
        lacking = missing(needs, store, thorough=thorough)
        files = lacking.artifacts()
        wanted = [file for file in files if not waiting.has(file)]
        if wanted and offline:
            raise FetchError(_offline(wanted, project))
        size = 0
        if wanted:
            size = asyncio.run(_download(wanted, waiting, project, python, progress, patience))
        if files:
            with progress.step("store") as step:
                waiting.add(lacking, store)
                step.outcome(f"{len(files)} files added")
        waiting.tidy(files, store)
        return Fetched(len(wanted), size, everything - len(files))


def _offline(wanted: Sequence[Artifact], project: Path) -> str:
    names = ", ".join(file.file for file in wanted[:_NAMED])
    more = f" and {len(wanted) - _NAMED} more" if len(wanted) > _NAMED else ""
    what = "1 artifact is" if len(wanted) == 1 else f"{len(wanted)} artifacts are"
    return (
        f"{what} not in the Nix store, and offline nothing is fetched: "
        f"{names}{more}; run `agentix fetch {project}` with a network"
    )


async def _download(
    wanted: Sequence[Artifact],
    waiting: Arrivals,
    project: Path,
    python: str,
    progress: Progress,
    patience: Patience | None,
) -> int:
    """Bring *wanted* to where they wait; return how many bytes they are."""
    from agentix.build.fetch.addresses import find_addresses
    from agentix.build.fetch.npm import bring_tarballs
    from agentix.build.session import open_session
    from agentix.patience import Patience

    tarballs = [file for file in wanted if file.npm]
    others = [file for file in wanted if not file.npm]
    with progress.step("locate") as step:
        addresses = await find_addresses(others, project=project, python=python)
        step.outcome(f"{len(addresses)} files")
    total = total_size(wanted) if all(file.size for file in wanted) else None
    with progress.step("fetch", total=total, unit="bytes") as step:
        async with open_session(_AT_ONCE) as session:
            turns = asyncio.Semaphore(_AT_ONCE)
            with ungrouped():
                async with asyncio.TaskGroup() as group:
                    patient = patience or Patience()
                    job = bring_tarballs(tarballs, waiting, project, step, patient, turns)
                    group.create_task(job)
                    for file, address in addresses.items():
                        place = waiting.place(file)
                        place.parent.mkdir(exist_ok=True)
                        job = _one(session, address, file, place, step, patient, turns)
                        group.create_task(job)
        size = sum(waiting.place(file).stat().st_size for file in wanted if not file.commit)
        step.outcome(f"{len(wanted)} files, {size / 1e6:.1f} MB")
        return size


async def _one(
    session: aiohttp.ClientSession,
    address: str,
    file: Artifact,
    place: Path,
    step: Step,
    patience: Patience,
    turns: asyncio.Semaphore,
) -> None:
    from agentix.build.download import Gone, copy, download, shown
    from agentix.build.fetch.addresses import explain_gone

    async with turns:
        if file.commit is not None:
            await _tree(file, file.commit, address, place)
            return
        if address.startswith("file:"):
            await asyncio.to_thread(copy, address, file, place)
            step.advance(file.size or 0)
            return
        try:
            await download(
                session,
                address,
                file,
                place,
                advance=step.advance,
                patience=patience,
            )
        except Gone as error:
            raise explain_gone(file, shown(address)) from error


async def _tree(file: Artifact, commit: str, address: str, place: Path) -> None:
    """Make *place* the tree of a *commit*, if that is what was locked."""
    draft = place.with_name(f"{place.name}.partial")
    await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
    try:
        await check_out(address, commit, draft)
        found = (await asyncio.to_thread(nar_hash, draft)).sha256
        if found != file.sha256:
            raise FetchError(
                f"commit {commit} of {file.package} is not what was locked: expected NAR sha256 "
                f"{file.sha256}, got {found}; nothing was added. Does a filter of git change files?"
            )
        draft.rename(place)
    except LockError as error:
        raise FetchError(f"{file.package} {file.version}: {error}") from error
    finally:
        await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
