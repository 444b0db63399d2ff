"""The plan of one build: everything Python decides, as the value that Nix reads."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.build.sources import LOCK_FILE, Source, source_files
from agentix.errors import ProjectError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentix.build.lock import Lock
    from agentix.build.request import Request
    from agentix.platforms import PlatformName


@dataclass(frozen=True, slots=True)
class Plan:
    """One bundle to build: from which lock and sources, for which platform, under which name.

    ``output`` is where its tar will be, which is no part of any source, wherever it lies.
    ``nixpkgs`` is a folder that stands for the pinned nixpkgs, and ``without_nixpkgs`` forbids to
    fetch that one.
    """

    lock: Path
    platform: PlatformName
    name: str
    version: str
    sources: Mapping[str, Source]
    output: Path
    nixpkgs: str | None = None
    without_nixpkgs: bool = False

    def dumps(self) -> str:
        """Return the text of plan.json, which ``nix/build.nix`` reads."""
        trees = {
            name: {"root": str(source.root), "files": list(source.files)}
            for name, source in self.sources.items()
        }
        data: dict[str, object] = {
            "lock": str(self.lock),
            "platform": self.platform,
            "name": self.name,
            "sources": trees,
        }
        if self.nixpkgs is not None:
            data["nixpkgs"] = self.nixpkgs
        elif self.without_nixpkgs:
            data["nixpkgs"] = None
        return json.dumps(data, sort_keys=True, ensure_ascii=False)


def make_plan(lock: Lock, request: Request) -> Plan:
    """Return the plan of building what *lock* pins as *request* asks. Nothing is written."""
    root = Path(request.root)
    name = request.name or lock.name
    output = request.destination(name, lock.version)
    return Plan(
        lock=root / LOCK_FILE,
        platform=request.platform,
        name=name,
        version=lock.version,
        sources={
            project: Source(source.root, tuple(_without(output, source)))
            for project, source in sources(lock, root).items()
        },
        output=output,
        nixpkgs=request.nixpkgs,
    )


def sources(lock: Lock, root: Path) -> dict[str, Source]:
    """Return the source of each project of *lock*, whose own project is in the folder *root*.

    A project that lies inside another one's folder is left out of the outer one, so that editing
    the inner does not rebuild the outer.
    """
    folders = {p.name: Path(os.path.normpath(root.resolve() / p.path)) for p in lock.projects}
    found = {}
    for name, folder in folders.items():
        if not folder.is_dir():
            raise ProjectError(
                f"the source of {name} is not at {folder}; run `agentix lock`, or put it back"
            )
        inner = [other for other in folders.values() if other != folder]
        found[name] = Source(folder, tuple(source_files(folder, without=inner)))
    return found


def _without(output: Path, source: Source) -> list[str]:
    if not output.is_relative_to(source.root):
        return list(source.files)
    name = output.relative_to(source.root).as_posix()
    return [file for file in source.files if file != name]
