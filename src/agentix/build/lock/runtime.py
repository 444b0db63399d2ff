"""Where the part of Agentix that runs inside a bundle comes from.

A project may say so itself, as for any dependency, in its ``[tool.uv.sources]``; else it is the
runtime of the Agentix that builds, wherever that was installed from.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from agentix.build.project import Project

RUNTIME = "agentix-runtime"


def runtime_folder(project: Project) -> Path | None:
    """Return the folder of the runtime's source for bundles of *project*, None for a release."""
    if (named := _named_folder(project)) is not None:
        return named
    folder = _source_folder(RUNTIME)
    if folder is None and (checkout := _source_folder("agentix")) is not None:
        folder = checkout / "runtime"
    return folder if folder is not None and (folder / "pyproject.toml").is_file() else None


def runtime_requirement(project: Project) -> str:
    """Return the requirement that puts the runtime into bundles of *project*."""
    folder = runtime_folder(project)
    if folder is not None:
        return f"{RUNTIME} @ {folder.as_uri()}"
    return f"{RUNTIME}=={importlib.metadata.version('agentix')}"


def _named_folder(project: Project) -> Path | None:
    for source in project.uv_sources(RUNTIME):
        if "path" in source:
            return (project.root / str(source["path"])).resolve()
    return None


def _source_folder(distribution: str) -> Path | None:
    """Return the folder that *distribution* was installed from, as its installer recorded it."""
    try:
        text = importlib.metadata.distribution(distribution).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    record = json.loads(text) if text else {}
    if "dir_info" not in record:
        return None
    return Path(unquote(urlsplit(record["url"]).path)).resolve()
