"""The plan of one build: everything Python decides, as the value that Nix reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.build.lock import LOCK_FILE
from agentix.build.sources import Source, sources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentix.build.lock import Lock
    from agentix.build.request import Request
    from agentix.platforms import PlatformName


@dataclass(frozen=True, slots=True)
class Plan:
    """One bundle to build: from which lock and sources, for which platform, under which name.

    ``output`` is where its tar will be, which is no part of any source, wherever it lies.
    """

    lock: Path
    platform: PlatformName
    name: str
    version: str
    sources: Mapping[str, Source]
    output: Path

    def dumps(self) -> str:
        """Return the text of plan.json, which ``nix/build.nix`` reads."""
        trees = {
            name: {"root": str(source.root), "files": list(source.files)}
            for name, source in self.sources.items()
        }
        data = {
            "lock": str(self.lock),
            "platform": self.platform,
            "name": self.name,
            "sources": trees,
        }
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
    )


def _without(output: Path, source: Source) -> list[str]:
    if not output.is_relative_to(source.root):
        return list(source.files)
    name = output.relative_to(source.root).as_posix()
    return [file for file in source.files if file != name]
