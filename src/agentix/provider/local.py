"""Providers whose sandboxes are processes of this machine: all but how one is started.

A subclass says that::

    class SomeProvider(LocalProvider):
        name = "some"

        async def create(self, config):
            self.refuse_limits(config)
            remove_leftovers(self.name)
            bundle = await stoppable(partial(self.open_bundle, config), name=…)
            async with self.making(config.image, bundle) as making:
                making.process = process = HostedProcess.start([…], tail=tail)
                await until_ready(making.folder, death=process.ended, account=…, within=…)
                return making.finish(SandboxProcesses(first=…, launcher=process.itself))

What is recorded then is how whichever process of the user finds and ends the sandbox.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix import platforms
from agentix.bundle import BundleCache
from agentix.errors import ImageError, ProviderError
from agentix.progress import SILENT
from agentix.provider.base import SandboxProvider
from agentix.provider.recorded import delete_recorded, get_recorded, handle
from agentix.provider.runtime_folder import RuntimeFolder
from agentix.provider.teardown import undone_on_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agentix.bundle import CachedBundle
    from agentix.progress import Progress
    from agentix.provider.config import SandboxConfig
    from agentix.provider.hosted import HostedProcess
    from agentix.provider.processes import SandboxProcesses
    from agentix.provider.sandbox import Sandbox, SandboxId

_BOUND = 30.0  # seconds, beyond the grace that a sandbox is given, to be rid of it


@dataclass(slots=True)
class Making:
    """A sandbox that is being made: its folder, and its process once that was started."""

    folder: RuntimeFolder
    process: HostedProcess | None = None

    def finish(self, processes: SandboxProcesses) -> Sandbox:
        """Record by which *processes* the sandbox is known, and return a handle of it."""
        self.folder.record(processes.facts())
        return handle(self.folder)

    async def undo(self) -> None:
        """Leave nothing of it."""
        try:
            if self.process is not None:
                await self.process.kill()
        finally:
            await asyncio.to_thread(self.folder.remove)


class LocalProvider(SandboxProvider):
    """Implements ``delete`` and ``get``, and has what ``create`` is made of."""

    @property
    @abstractmethod
    def grace(self) -> float:
        """How many seconds a sandbox has to end by itself when it is deleted."""

    async def delete(self, sandbox_id: SandboxId) -> None:
        """End the sandbox and remove its folder; nothing happens when it is gone already."""
        await delete_recorded(sandbox_id, self.name, grace=self.grace, within=self.delete_bound)

    @property
    def delete_bound(self) -> float:
        """How many seconds ``delete`` may take."""
        return self.grace + _BOUND

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Return a handle of a sandbox that lives; SandboxNotFound when it does not."""
        return get_recorded(sandbox_id, self.name)

    @asynccontextmanager
    async def making(self, image: str, bundle: CachedBundle) -> AsyncIterator[Making]:
        """Yield a sandbox to make, of which nothing is left when the body fails."""
        making = Making(RuntimeFolder.create(self.name, image, bundle))
        what = f"ending sandbox {making.folder.sandbox_id}"
        async with undone_on_error(making.undo, what=what, within=_BOUND):
            yield making

    def refuse_limits(self, config: SandboxConfig) -> None:
        """Raise ProviderError where *config* asks for limits: nobody here enforces any."""
        if limits := config.resource.requested() if config.resource else []:
            raise ProviderError(
                f"{self.name} cannot limit {' or '.join(limits)}; leave out resource, "
                "or use a provider that can, such as docker"
            )

    def open_bundle(self, config: SandboxConfig, *, progress: Progress = SILENT) -> CachedBundle:
        """Return the bundle of *config*, which runs on this machine.

        Raises BundleError, or ProviderError when it is for another one.
        """
        try:
            machine = platforms.current().name
        except ValueError as error:
            raise ProviderError(str(error)) from error
        bundle = BundleCache().open(config.bundle, progress=progress)
        bundle.check_protocol()
        bundle.check_platform(config.platform or machine)
        self.check_machine(bundle, machine)
        return bundle

    def check_machine(self, bundle: CachedBundle, machine: str) -> None:
        """Raise ProviderError when *bundle* is for another platform than *machine*."""
        if bundle.manifest.platform != machine:
            raise ProviderError(
                f"bundle {bundle.manifest.title} is for {bundle.manifest.platform}, "
                f"but this machine is {machine}; {self.name} emulates nothing"
            )

    @staticmethod
    def refuse_foreign(label: str, platform: str | None, bundle: CachedBundle) -> None:
        """Raise ImageError when the image called *label* is for another platform than *bundle*."""
        wanted = bundle.manifest.platform
        if platform not in (None, wanted):
            raise ImageError(
                f"image {label} is for {platform}, but the bundle is for {wanted}; "
                f"use an image for {wanted}"
            )
