"""Dependencies that a project takes from version control or a URL: found before uv goes there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from agentix.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.build.project import Project


def refuse_remote_references(project: Project) -> None:
    """Raise LockError when *project* itself depends on version control or on a URL."""
    for name, kind in _remote(project):
        raise LockError(
            f"cannot lock {project.name}: {name} comes from {kind}, and only releases and folders "
            "can be locked: use a release of it that has wheels, or make it a path dependency"
        )


def _remote(project: Project) -> Iterator[tuple[str, str]]:
    sources = _sources(project)
    for text in project.tables.get("project", {}).get("dependencies", []):
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue  # uv says it better
        scheme = urlsplit(requirement.url or "").scheme
        if scheme and scheme != "file":
            yield requirement.name, "version control" if "+" in scheme else "a URL"
        for source in sources.get(canonicalize_name(requirement.name), []):
            if "git" in source:
                yield requirement.name, "version control"
            elif "url" in source:
                yield requirement.name, "a URL"


def _sources(project: Project) -> dict[str, list[dict[str, Any]]]:
    tool = project.tables.get("tool", {})
    uv = tool.get("uv", {}) if isinstance(tool, dict) else {}
    sources = uv.get("sources", {}) if isinstance(uv, dict) else {}
    return {
        canonicalize_name(name): source if isinstance(source, list) else [source]
        for name, source in sources.items()
    }
