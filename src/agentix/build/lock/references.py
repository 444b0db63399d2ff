"""Dependencies that a project takes from version control or a URL: found before uv goes there."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement

from agentix.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.build.project import Project


def refuse_remote_references(project: Project) -> None:
    """Raise LockError when *project* itself depends on version control or on a URL."""
    for name, kind in _remote(project):
        raise LockError(f"cannot lock {project.name}: {no_release(name, kind)}")


def no_release(name: str, kind: str) -> str:
    """Say that the package *name* comes from somewhere that a lock cannot name."""
    return (
        f"{name} comes from {kind}, and only releases and folders can be locked: "
        "use a release of it that has wheels, or make it a path dependency"
    )


def _remote(project: Project) -> Iterator[tuple[str, str]]:
    for text in project.tables.get("project", {}).get("dependencies", []):
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue  # uv says it better
        scheme = urlsplit(requirement.url or "").scheme
        if scheme and scheme != "file":
            yield requirement.name, "version control" if "+" in scheme else "a URL"
        for source in project.uv_sources(requirement.name):
            if "git" in source:
                yield requirement.name, "version control"
            elif "url" in source:
                yield requirement.name, "a URL"
