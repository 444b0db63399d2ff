"""Build backends: the environments that they are locked to, and what only they can tell."""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from pydantic import TypeAdapter, ValidationError

from agentix.build.lock import uv
from agentix.build.lock.resolution import Resolution, Resolver, pinned_versions
from agentix.build.project import read_tree, workspace_root
from agentix.errors import LockError
from agentix.platforms import PLATFORMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentix.build.artifact import Artifact
    from agentix.build.lock.file import Lock, LockedProject, LockedRelease
    from agentix.build.project import Backend

# PEP 517's hooks, called as a build front end would: in the source tree, isolated from it.
_BACKEND = """
import contextlib, email, functools, importlib, json, os, sys, tempfile
entry, *sys.path[:0] = sys.argv[1:]
module, _, attribute = entry.partition(":")
backend = importlib.import_module(module)
backend = functools.reduce(getattr, filter(None, attribute.split(".")), backend)
"""
_ASK_REQUIREMENTS = f"""{_BACKEND}
with contextlib.redirect_stdout(sys.stderr):
    wanted = backend.get_requires_for_build_wheel()
print(json.dumps(wanted))
"""
_ASK_VERSION = f"""{_BACKEND}
with tempfile.TemporaryDirectory() as folder:
    with contextlib.redirect_stdout(sys.stderr):
        name = backend.prepare_metadata_for_build_wheel(folder)
    with open(os.path.join(folder, name, "METADATA"), encoding="utf-8") as file:
        print(email.message_from_file(file)["Version"])
"""


_REQUIREMENTS = TypeAdapter(list[str])


class Backends:
    """Resolves backends, each set of requirements once however many projects share it."""

    def __init__(self, resolver: Resolver, previous: Lock | None, group: asyncio.TaskGroup) -> None:
        self._resolver = resolver
        self._group = group
        self._tasks: dict[tuple[str, ...], asyncio.Task[Resolution]] = {}
        parts: list[LockedProject | LockedRelease] = []
        if previous is not None:
            parts = [*previous.projects, *previous.releases]
        files = [file for part in parts for files in part.backend.values() for file in files]
        self._preferred = pinned_versions(previous, files)
        self._uv = read_tree(workspace_root(resolver.root)).uv

    def expect(self, backend: Backend) -> asyncio.Task[Resolution]:
        """Start resolving *backend* if nobody has; return the task that does."""
        requirements = _requirements(backend)
        if requirements not in self._tasks:
            self._tasks[requirements] = self._group.create_task(self._resolve(requirements))
        return self._tasks[requirements]

    def complete(self, backend: Backend, project: str) -> Backend:
        """Return *backend* with what uv's user has added to what the *project* itself asks for."""
        tables = self._uv.get("extra-build-dependencies")
        for name, listed in tables.items() if isinstance(tables, dict) else ():
            if canonicalize_name(name) == project and isinstance(listed, list):
                items = [
                    item.get("requirement") if isinstance(item, dict) else item for item in listed
                ]
                extra = [item for item in items if isinstance(item, str)]
                return replace(backend, requires=(*backend.requires, *extra))
        return backend

    async def resolve(self, backend: Backend, project: str) -> Resolution:
        """Return the wheels of *backend*'s environment; LockError names the *project*."""
        resolution = await self.expect(self.complete(backend, project))
        if resolution.trees:
            listed = ", ".join(resolution.trees)
            raise LockError(
                f"the build backend of {project} comes from a folder ({listed}), and only "
                "wheels of one can be locked: publish a wheel of it, or use backend-path"
            )
        missing = dict(resolution.missing)
        for platform, origins in resolution.origins.items():
            if origins:
                needed = f"{origins[0].package} {origins[0].version}"
                missing[platform] = (
                    f"its build backend needs {needed}, which has no wheel: choose another version "
                    "with build-constraint-dependencies in [tool.uv]"
                )
        files = {platform: f for platform, f in resolution.files.items() if platform not in missing}
        if resolution.files and not files:
            raise LockError(f"cannot lock {project}: {next(iter(missing.values()))}")
        return replace(resolution, files=files, missing=missing, origins={})

    def artifacts(self) -> dict[str, Artifact]:
        """Return every file of the backends that were resolved."""
        found: dict[str, Artifact] = {}
        for task in self._tasks.values():
            found |= task.result().artifacts
        return found

    async def _resolve(self, requirements: tuple[str, ...]) -> Resolution:
        if not requirements:
            return Resolution(files=dict.fromkeys(PLATFORMS, ()))
        try:
            return await self._resolver.resolve(
                [], requirements, preferred=self._preferred, constraints=self._constraints()
            )
        except LockError as error:
            listed = ", ".join(requirements)
            raise LockError(f"cannot lock the build backend ({listed}): {error}") from error

    def _constraints(self) -> str:
        listed = self._uv.get("build-constraint-dependencies")
        return "\n".join(map(str, listed)) if isinstance(listed, list) else ""


async def ask_version(name: str, root: Path, backend: Backend) -> str:
    """Return the version of the project *name* in *root*, as its backend computes it.

    Raises LockError with the backend's own words when it cannot.
    """
    version = (await _ask(_ASK_VERSION, f"the version of {name}", root, backend)).strip()
    if not version:
        raise LockError(f"the backend {backend.entry} of {name} gives it no version")
    return version


def has_hidden_requirements(root: Path) -> bool:
    """Say whether the project in *root* tells only its backend all that building it takes."""
    files = (root / name for name in ("setup.py", "setup.cfg"))
    return any(b"setup_requires" in file.read_bytes() for file in files if file.is_file())


async def ask_requirements(name: str, root: Path, backend: Backend) -> Backend:
    """Return *backend* with what it says itself that building the project *name* in *root* takes.

    Raises LockError with the backend's own words when it cannot.
    """
    output = await _ask(_ASK_REQUIREMENTS, f"what building {name} takes", root, backend)
    try:
        wanted = _REQUIREMENTS.validate_json(output)
    except ValidationError as error:
        raise LockError(f"the backend {backend.entry} of {name} asks for no packages") from error
    return replace(backend, requires=(*backend.requires, *wanted))


async def _ask(code: str, what: str, root: Path, backend: Backend) -> str:
    path = [str(root / folder) for folder in backend.path]
    requirements = [word for needed in _requirements(backend) for word in ("--with", needed)]
    with tempfile.TemporaryDirectory(prefix="agentix-") as scratch:
        environment = await asyncio.to_thread(uv.divert_egg_info, Path(scratch))
        try:
            return await uv.run(
                *("run", "--no-project", "--isolated", "--quiet", "--python", sys.executable),
                *requirements,
                *("python", "-I", "-c", code, backend.entry, *path),
                cwd=root,
                environment=environment,
            )
        except uv.UvFailed as error:
            raise LockError(
                f"cannot tell {what}: its backend {backend.entry} failed: {error}"
            ) from error


def _requirements(backend: Backend) -> tuple[str, ...]:
    """Return what *backend* needs, also what goes without saying: setuptools, and what it asks for.

    Old versions of setuptools ask for wheel only when they run.
    """
    extra = {"setuptools", "wheel"} if backend.entry.startswith("setuptools.") else set()
    return tuple(sorted({*backend.requires, *(extra - _names(backend.requires))}))


def _names(requirements: Sequence[str]) -> set[str]:
    found = (re.match(r"[A-Za-z0-9._-]+", requirement) for requirement in requirements)
    return {canonicalize_name(name[0]) for name in found if name is not None}
