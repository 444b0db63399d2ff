"""The environments in which projects are built: each backend's own requirements, locked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.build.resolution import Resolution, Resolver, pinned_versions
from agentix.errors import LockError
from agentix.platforms import PLATFORMS

if TYPE_CHECKING:
    import asyncio

    from agentix.build.lock import Artifact, Lock
    from agentix.build.project import Backend


class Backends:
    """Resolves backends, each set of requirements once however many projects share it."""

    def __init__(self, resolver: Resolver, previous: Lock | None, group: asyncio.TaskGroup) -> None:
        self._resolver = resolver
        self._group = group
        self._tasks: dict[tuple[str, ...], asyncio.Task[Resolution]] = {}
        files = [
            file
            for project in (previous.projects if previous else ())
            for files in project.backend.values()
            for file in files
        ]
        self._preferred = pinned_versions(previous, files)

    def expect(self, backend: Backend) -> asyncio.Task[Resolution]:
        """Start resolving *backend* if nobody has; return the task that does."""
        requirements = _requirements(backend)
        if requirements not in self._tasks:
            self._tasks[requirements] = self._group.create_task(self._resolve(requirements))
        return self._tasks[requirements]

    async def resolve(self, backend: Backend, project: str) -> Resolution:
        """Return the wheels of *backend*'s environment; LockError names the *project*."""
        resolution = await self.expect(backend)
        if resolution.trees:
            listed = ", ".join(resolution.trees)
            raise LockError(
                f"the build backend of {project} comes from a folder ({listed}), and only "
                "wheels of one can be locked: publish a wheel of it, or use backend-path"
            )
        return resolution

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
            return await self._resolver.resolve([], requirements, preferred=self._preferred)
        except LockError as error:
            listed = ", ".join(requirements)
            raise LockError(f"cannot lock the build backend ({listed}): {error}") from error


def _requirements(backend: Backend) -> tuple[str, ...]:
    """Return what *backend* needs; old versions of setuptools ask for wheel only when they run."""
    extra = {"wheel"} if backend.entry.startswith("setuptools.") else set()
    return tuple(sorted({*backend.requires, *extra}))
