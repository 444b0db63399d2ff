"""Fetching without much patience, and what is there afterwards."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from agentix import nix
from agentix.build.fetch import Fetched, Needs, fetch
from agentix.patience import Patience

if TYPE_CHECKING:
    from agentix.build.artifact import Artifact, Seed

QUICK = Patience(tries=4, first=0.01, longest=0.02)


def bring(*files: Artifact, programs: tuple[Seed, ...] = (), **options: object) -> Fetched:
    defaults: dict[str, object] = {"project": Path.cwd(), "python": "3.11", "patience": QUICK}
    return fetch(Needs(files, programs), **(defaults | options))  # type: ignore[arg-type]


def stored(file: Artifact) -> bytes | None:
    path = Path(file.store_path)
    return path.read_bytes() if not nix.invalid([path]) else None


def left_in_cache() -> list[str]:
    folder = Path(os.environ["AGENTIX_CACHE_DIR"], "downloads")
    return sorted(p.name for p in folder.rglob("*") if p.is_file() and p.name != ".lock")
