"""Put everything a build starts from into the Nix store: the only step that uses the network.

Files arrive in the user's cache, are verified there and then handed to Nix. What is interrupted
goes on from there the next time; the cache keeps nothing that the store has.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix import nix, platforms
from agentix.build.fetch import programs
from agentix.build.fetch.needs import Needs, total_size
from agentix.build.ungrouped import ungrouped
from agentix.errors import FetchError
from agentix.folders import cache_folder
from agentix.progress import SILENT, Progress, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import aiohttp

    from agentix.build.artifact import Artifact, Seed
    from agentix.build.fetch.download import Patience
    from agentix.nix import Nix

_AT_ONCE = 8  # downloads
_WAIT_FOR_OTHERS = 1800.0  # seconds that another fetch may take before this one gives up
_FORGOTTEN = 30 * 86400.0  # seconds after which an unfinished download is not waited for
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
    from agentix.build.fetch.needs import needs
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
    items: tuple[Artifact | Seed, ...] = (*needs.files, *needs.programs)
    paths = {item: store.real(item.store_path) for item in items}
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
    downloads = cache_folder("downloads")
    with _alone(downloads):
        lacking = missing(needs, store, thorough=thorough)
        files = lacking.artifacts()
        wanted = [file for file in files if not _is_kept(downloads, file)]
        if wanted and offline:
            raise FetchError(_offline(wanted, project))
        size = 0
        if wanted:
            size = asyncio.run(_download(wanted, downloads, project, python, progress, patience))
        if files:
            with progress.step("store") as step:
                _add(lacking, downloads, store)
                step.outcome(f"{len(files)} files added")
        _tidy(downloads, files, store)
        return Fetched(len(wanted), size, everything - len(files))


def _place(downloads: Path, file: Artifact) -> Path:
    """Return where *file* waits for the store: its name there is its name in the store."""
    return downloads / file.sha256 / nix.store_name(file.file)


def _is_kept(downloads: Path, file: Artifact) -> bool:
    """Say whether an earlier run, ended before it could hand it over, left *file* complete."""
    from agentix.build.fetch.download import sha256_of

    place = _place(downloads, file)
    return place.is_file() and sha256_of(place) == file.sha256


@contextmanager
def _alone(downloads: Path) -> Iterator[None]:
    """Let one fetch work at a time; the next finds done what the first has brought."""
    from agentix.bundle.staging import acquire

    lock = acquire(downloads / ".lock", _WAIT_FOR_OTHERS)
    if lock is None:
        raise FetchError(
            f"another agentix has been fetching for {_WAIT_FOR_OTHERS / 60:.0f} minutes; "
            "wait for it, or end it and run the command again"
        )
    try:
        yield
    finally:
        os.close(lock)


def _offline(wanted: Sequence[Artifact], project: Path) -> str:
    names = ", ".join(file.file for file in wanted[:_NAMED])
    more = f" and {len(wanted) - _NAMED} more" if len(wanted) > _NAMED else ""
    what = "1 artifact is" if len(wanted) == 1 else f"{len(wanted)} artifacts are"
    return (
        f"{what} not in the Nix store, and offline nothing is fetched: "
        f"{names}{more}; run `agentix fetch {project}` with a network"
    )


def _tidy(downloads: Path, added: Sequence[Artifact], store: Nix) -> None:
    """Remove what the store has now, and what nobody came back for."""
    done = {file.sha256 for file in added}
    for folder in downloads.iterdir():
        if not folder.is_dir():
            continue
        names = [entry.name for entry in folder.iterdir()]
        stored = any(store.real(nix.fixed_path(name, folder.name)).exists() for name in names)
        forgotten = folder.stat().st_mtime < time.time() - _FORGOTTEN
        if folder.name in done or stored or forgotten:
            shutil.rmtree(folder, ignore_errors=True)


async def _download(
    wanted: Sequence[Artifact],
    downloads: Path,
    project: Path,
    python: str,
    progress: Progress,
    patience: Patience | None,
) -> int:
    """Bring *wanted* into the folder *downloads*; return how many bytes they are."""
    from agentix.build.fetch.addresses import find_addresses
    from agentix.build.fetch.download import Patience
    from agentix.build.session import open_session

    with progress.step("locate") as step:
        addresses = await find_addresses(wanted, project=project, python=python)
        step.outcome(f"{len(addresses)} files")
    total = total_size(wanted) if all(file.size for file in wanted) else None
    with progress.step("fetch", total=total, unit="bytes") as step:
        async with open_session(_AT_ONCE) as session:
            turns = asyncio.Semaphore(_AT_ONCE)
            with ungrouped(FetchError):
                async with asyncio.TaskGroup() as group:
                    for file, address in addresses.items():
                        place = _place(downloads, file)
                        place.parent.mkdir(exist_ok=True)
                        job = _one(
                            session, address, file, place, step, patience or Patience(), turns
                        )
                        group.create_task(job)
        size = sum(_place(downloads, file).stat().st_size for file in wanted)
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
    from agentix.build.fetch.addresses import explain_gone
    from agentix.build.fetch.download import Gone, copy, download, shown

    async with turns:
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


def _add(lacking: Needs, downloads: Path, store: Nix) -> None:
    """Hand over what has arrived. Each path is known beforehand, so a wrong one cannot pass."""
    expected = [store.real(file.store_path) for file in lacking.files]
    added = nix.add_fixed([_place(downloads, file) for file in lacking.files], nix=store)
    with tempfile.TemporaryDirectory(dir=downloads) as folder:
        roots = []
        for number, program in enumerate(lacking.programs):
            own = Path(folder, str(number))  # one name for two platforms: two folders
            own.mkdir()
            roots.append(programs.extract(program, _place(downloads, program.artifact), own))
        expected += [store.real(program.store_path) for program in lacking.programs]
        added += nix.add_fixed(roots, recursive=True, nix=store)
    if added != expected:
        wrong = next(
            (path for path, want in zip(added, expected, strict=False) if path != want), ""
        )
        raise FetchError(
            f"Nix keeps an artifact at {wrong}, where no build looks for it; is another "
            "store configured in nix.conf?"
        )
