"""Whether a lock still fits its project: a digest of everything that the resolution depended on."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from agentix.build.lock.compiled import is_compiled
from agentix.build.lock.plugins import declaring_files
from agentix.build.lock.runtime import runtime_folder, runtime_requirement
from agentix.build.project import PYPROJECT, read_project, read_tree, workspace_root
from agentix.build.toolchain import toolchains, toolchains_folder
from agentix.errors import ProjectError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agentix.build.lock.file import Lock

UV_LOCK = "uv.lock"
_OF_A_PROJECT = (PYPROJECT, "setup.py", "setup.cfg")
_OF_UV = (UV_LOCK, "uv.toml")
DECIDING = (*_OF_A_PROJECT, *_OF_UV)  # all that decide whether a lock is current
_RELEVANT = ("name", "version", "dynamic", "requires-python", "dependencies")
_MAY_BE_ASKED_FOR = "optional-dependencies"


def is_current(lock: Lock, root: Path, *, python: str | None = None) -> bool:
    """Say whether resolving the project in *root* anew would start from what *lock* started from.

    Takes milliseconds and no network. *python* is the minor version that the user asks for, if any.
    Raises ProjectError when the project itself cannot be read.
    """
    project = read_project(root)
    asked = python or project.settings.python
    toolchain = toolchains().get(lock.toolchain)
    if toolchain is None or toolchain.python != lock.python or asked not in {None, lock.python}:
        return False
    if lock.name != canonicalize_name(project.settings.name or project.name or ""):
        return False
    try:
        for locked in lock.projects:
            tree = read_tree(root / locked.path)
            if tree.name not in {None, locked.name} or tree.version not in {None, locked.version}:
                return False
        return lock.inputs == digest(root, (p.path for p in lock.projects), lock.toolchain)
    except ProjectError:
        return False  # a path dependency has moved or changed beyond recognition


def digest(root: Path, paths: Iterable[str], toolchain: str) -> str:
    """Return the sha256 of what resolving the project in *root* depends on.

    *paths* are the folders of all projects in the lock, relative to *root*; nothing that goes in
    depends on the machine or on where the project lies.
    """
    root = root.resolve()
    project = read_tree(root)
    folder = runtime_folder(project)
    workspace = workspace_root(root)
    seen = {
        "toolchain": _sha256(toolchains_folder() / f"{toolchain}.json"),
        "runtime": os.path.relpath(folder, root) if folder else runtime_requirement(project),
        "projects": {path: _project(root / path) for path in sorted(set(paths))},
        "workspace": read_tree(workspace).uv or None if workspace != root else None,
        "uv": {name: _sha256(workspace / name) for name in _OF_UV},
    }
    text = json.dumps(seen, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _project(folder: Path) -> dict[str, Any]:
    """Return what matters of one project: all of it when its backend decides dependencies."""
    project = read_tree(folder)
    if project.name is None and not (folder / "setup.py").is_file():
        raise ProjectError(f"{folder} is no longer a Python project")
    table = project.tables.get("project", {})
    relevant = {
        "project": {key: table.get(key) for key in (*_RELEVANT, _MAY_BE_ASKED_FOR)},
        "build-system": project.tables.get("build-system"),
        "uv": project.uv or None,
        "agentix": project.tool("agentix") or None,
    }
    if (plugin := declaring_files(project)) is not None:  # only then: other locks stay as they are
        relevant["plugin"] = {name: _sha256(folder / name) for name in plugin}
    if is_compiled(project):
        relevant["compiled"] = True
    if {"version", "dependencies", _MAY_BE_ASKED_FOR}.isdisjoint(project.dynamic):
        return relevant
    return relevant | {name: _sha256(folder / name) for name in _OF_A_PROJECT}


def _sha256(file: Path) -> str | None:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ProjectError(f"cannot read {file}: {error.strerror}") from error
