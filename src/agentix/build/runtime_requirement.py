"""Where the part of Agentix that runs inside a bundle comes from: as this Agentix is installed."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

RUNTIME = "agentix-runtime"


def runtime_folder() -> Path | None:
    """Return the folder of the runtime's source when Agentix runs from a checkout, else None."""
    folder = _source_folder(RUNTIME)
    if folder is None and (checkout := _source_folder("agentix")) is not None:
        folder = checkout / "runtime"
    return folder if folder is not None and (folder / "pyproject.toml").is_file() else None


def runtime_requirement() -> str:
    """Return the requirement that puts the runtime of this very Agentix into a bundle."""
    folder = runtime_folder()
    if folder is not None:
        return f"{RUNTIME} @ {folder.as_uri()}"
    return f"{RUNTIME}=={importlib.metadata.version('agentix')}"


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
