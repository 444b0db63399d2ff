"""Where files wait for the store: a folder in the user's cache, for one fetch at a time."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix import nix
from agentix.build.fetch.programs import extract
from agentix.bundle.nar import nar_hash
from agentix.bundle.staging import acquire
from agentix.errors import FetchError
from agentix.folders import cache_folder, writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentix.build.artifact import Artifact, Seed
    from agentix.build.fetch.needs import Needs
    from agentix.nix import Nix

_WAIT_FOR_OTHERS = 1800.0  # seconds that another fetch may take before this one gives up
_FORGOTTEN = 30 * 86400.0  # seconds after which an unfinished download is not waited for


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The files that have come, each in a folder named by its hash."""

    folder: Path

    def place(self, file: Artifact) -> Path:
        """Return where *file* waits: its name there is its name in the store."""
        return self.folder / file.sha256 / nix.store_name(file.file)

    def has(self, file: Artifact) -> bool:
        """Say whether *file* is complete: an earlier run may have ended before it was added."""
        if file.commit is not None:
            place = self.place(file)
            return place.is_dir() and nar_hash(place).sha256 == file.sha256
        try:
            with self.place(file).open("rb") as content:
                return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256
        except FileNotFoundError:
            return False

    def add(self, lacking: Needs, store: Nix) -> None:
        """Hand over what has come. Each path is known beforehand, so a wrong one cannot pass."""
        files = [file for file in lacking.files if file.commit is None]
        trees = [file for file in lacking.files if file.commit is not None]
        items: list[Artifact | Seed] = [*files, *trees, *lacking.programs]
        expected = [store.real(item.store_path) for item in items]
        added = nix.add_fixed([self.place(file) for file in files], nix=store)
        added += nix.add_fixed([self.place(tree) for tree in trees], recursive=True, nix=store)
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            roots = []
            for number, program in enumerate(lacking.programs):
                own = Path(scratch, str(number))  # one name for two platforms: two folders
                own.mkdir()
                roots.append(extract(program, self.place(program.artifact), own))
            added += nix.add_fixed(roots, recursive=True, nix=store)
        if added != expected:
            wrong = next(
                (path for path, want in zip(added, expected, strict=False) if path != want), ""
            )
            raise FetchError(
                f"Nix keeps an artifact at {wrong}, where no build looks for it; is another "
                "store configured in nix.conf?"
            )

    def tidy(self, added: Sequence[Artifact], store: Nix) -> None:
        """Remove what the store has now, and what nobody came back for."""
        done = {file.sha256 for file in added}
        for folder in self.folder.iterdir():
            if not folder.is_dir():
                continue
            with suppress(FileNotFoundError):  # that of somebody who locks meanwhile, and is done
                names = [entry.name for entry in folder.iterdir()]
                paths = [store.real(nix.fixed_path(name, folder.name)) for name in names]
                forgotten = folder.stat().st_mtime < time.time() - _FORGOTTEN
                if folder.name in done or forgotten or any(path.exists() for path in paths):
                    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def arrivals() -> Iterator[Arrivals]:
    """Let one fetch work at a time; the next finds done what the first has brought."""
    folder = cache_folder("downloads")
    with writing(folder):
        lock = acquire(folder / ".lock", _WAIT_FOR_OTHERS)
    if lock is None:
        raise FetchError(
            f"another agentix has been fetching for {_WAIT_FOR_OTHERS / 60:.0f} minutes; "
            "wait for it, or end it and run the command again"
        )
    try:
        yield Arrivals(folder)
    finally:
        os.close(lock)
