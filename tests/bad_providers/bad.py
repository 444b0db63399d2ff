"""Providers with one fault each."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from agentix.errors import ProviderError, SandboxNotFound
from bad_providers.plain import PlainProvider

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from agentix.provider.base import Sandbox, SandboxConfig, SandboxId


class HidesTheFirstError(PlainProvider):
    """Deletes in a ``finally``, whose error replaces the one that was on its way."""

    @asynccontextmanager
    async def session(
        self, config: SandboxConfig, *, timeout: float | None = 300, http_sync_ms: int | None = 1000
    ) -> AsyncIterator[Sandbox]:
        sandbox = await self.create(config)
        try:
            yield sandbox
        finally:
            await sandbox.aclose()
            await self.delete(sandbox.sandbox_id)


class KnowsOnlyItsOwn(PlainProvider):
    """Finds sandboxes in its memory only, and in no other process."""

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        if sandbox_id not in self.started:
            raise SandboxNotFound("who is that?")
        return await super().get(sandbox_id)

    async def delete(self, sandbox_id: SandboxId) -> None:
        if sandbox_id in self.started:
            await super().delete(sandbox_id)


class DeletesOnce(PlainProvider):
    """Complains when there is nothing to delete."""

    async def delete(self, sandbox_id: SandboxId) -> None:
        if not self.folder(sandbox_id).exists():
            raise ProviderError("it is gone already")
        await super().delete(sandbox_id)


class LetsTheHostsEnvironmentThrough(PlainProvider):
    """Adds to the environment of the host program instead of starting from none."""

    def environment(self, config: SandboxConfig) -> Mapping[str, str]:
        return {**os.environ, **super().environment(config)}


class DropsWhatWasAskedFor(PlainProvider):
    """Takes the image's variables over those that were asked for."""

    def environment(self, config: SandboxConfig) -> Mapping[str, str]:
        return {**(config.env or {}), "TASK": "plain", "PATH": "/usr/bin:/bin"}


class IgnoresLimits(PlainProvider):
    """Makes a sandbox without the limit, and says nothing."""

    def refuse(self, config: SandboxConfig) -> None:
        pass


class SaysNothing(PlainProvider):
    """Isolates nothing, without a word about it."""

    def warn(self) -> None:
        pass


class SaysTooMuch(PlainProvider):
    """Puts whatever went wrong into its message, as it comes."""

    async def create(self, config: SandboxConfig) -> Sandbox:
        try:
            return await super().create(config)
        except ProviderError as error:
            raise type(error)("It did not work:\n\n") from error


class LeaksAFolder(PlainProvider):
    """Removes what it made of a sandbox only when that worked."""

    async def end(self, sandbox_id: SandboxId) -> None:
        folder = self.folder(sandbox_id)
        answered = (folder / "s").exists()
        await super().end(sandbox_id)
        if not answered:
            folder.mkdir(parents=True)


class LeaksOnCancellation(PlainProvider):
    """Undoes after an ``Exception``, which a cancellation is not."""

    async def create(self, config: SandboxConfig) -> Sandbox:
        work = asyncio.ensure_future(super().create(config))
        try:
            return await asyncio.shield(work)
        except Exception:
            await work
            raise


class SwallowsCancellation(PlainProvider):
    """Starts again when it is told to stop."""

    async def create(self, config: SandboxConfig) -> Sandbox:
        while True:
            with suppress(asyncio.CancelledError):
                return await super().create(config)


class MindsOneAtATime(PlainProvider):
    """Keeps in the provider what belongs to one ``create``."""

    chosen: SandboxId

    async def create(self, config: SandboxConfig) -> Sandbox:
        self.chosen = super().new_id()
        await asyncio.sleep(0.01)
        return await super().create(config)

    def new_id(self) -> SandboxId:
        return self.chosen


class KillsTheFirstOnly(PlainProvider):
    """Ends the process that it started, and forgets whom that has started."""

    async def end(self, sandbox_id: SandboxId) -> None:
        if process := self.started.pop(sandbox_id, None):
            process.kill()
            await asyncio.to_thread(process.wait)
        shutil.rmtree(self.folder(sandbox_id), ignore_errors=True)


class LeaksADescriptor(PlainProvider):
    """Keeps something open for each sandbox."""

    def start(self, program: Path, folder: Path, config: SandboxConfig) -> subprocess.Popen[bytes]:
        os.dup(0)
        return super().start(program, folder, config)
