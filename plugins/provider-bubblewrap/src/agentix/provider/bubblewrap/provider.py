"""The provider: one bubblewrap a sandbox, owned by the process that created it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from agentix import platforms
from agentix.errors import ImageError, ProviderError
from agentix.progress import SILENT
from agentix.provider.base import Sandbox, SandboxConfig, SandboxId, SandboxProvider
from agentix.provider.bubblewrap.config import BubblewrapProviderConfig
from agentix.provider.bubblewrap.diagnosis import diagnose, explain, refused_overlay
from agentix.provider.bubblewrap.layout import mounts
from agentix.provider.bubblewrap.options import options_for
from agentix.provider.bubblewrap.process import start
from agentix.provider.bubblewrap.program import find_program
from agentix.provider.kit import (
    BundleCache,
    ImageStore,
    OutputTail,
    RuntimeFolder,
    SandboxProcesses,
    account,
    delete_recorded,
    emulator,
    get_recorded,
    handle,
    platform_of,
    remove_leftovers,
    stoppable,
    undone_on_error,
    until_ready,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agentix.progress import Progress
    from agentix.provider.base import Finding
    from agentix.provider.bubblewrap.layout import Mounts
    from agentix.provider.kit import CachedBundle, HostedProcess, Image, Stop

# bubblewrap sets PWD; engines do not. Standard input ends when this process does, and that ends the
# sandbox. Not --die-with-parent: it would kill bubblewrap at work, and leave what waits for it.
_ARGUMENTS = ("--unset", "PWD", "--end-with-stdin")
_BOUND = 30.0  # seconds, beyond the grace that a sandbox is given, to be rid of it


class BubblewrapProvider(SandboxProvider):
    """Makes sandboxes with bubblewrap: rootless, without a daemon.

    ``image`` is ``"host"`` (this machine's root, with memory laid over it), the folder of a root
    file system, a tar of one, an archive by ``docker save`` or ``skopeo`` (OCI layout), or a name
    at a registry, which skopeo fetches; images are unpacked once. A sandbox ends with the process
    that created it, at the latest; meanwhile other processes of the same user can ``get`` and
    ``delete`` it.
    """

    name = "bubblewrap"

    def __init__(
        self, config: BubblewrapProviderConfig | None = None, *, progress: Progress = SILENT
    ) -> None:
        self.config = config or BubblewrapProviderConfig()
        self._progress = progress

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Return a new sandbox that answers.

        Raises ImageError, BundleError, or ProviderError when bubblewrap cannot run here, or cannot
        do what *config* asks for.
        """
        self._refuse_limits(config)
        remove_leftovers(self.name)
        program, image, bundle = await stoppable(
            partial(self._open, config), name=f"open {config.image}"
        )
        for last in (False, False, True):
            mounted, tail = mounts(), OutputTail()
            try:
                return await self._attempt(program, image, bundle, config, mounted, tail)
            except ProviderError:
                # An overlay does not go over what somebody has just mounted something below.
                if last or not refused_overlay(tail.text()) or mounts() == mounted:
                    raise
        raise AssertionError  # the last attempt returned or raised

    async def _attempt(
        self,
        program: Path,
        image: Image,
        bundle: CachedBundle,
        config: SandboxConfig,
        mounted: Mounts,
        tail: OutputTail,
    ) -> Sandbox:
        folder = RuntimeFolder.create(self.name, config.image, bundle)
        process: HostedProcess | None = None

        async def undo() -> None:
            try:
                if process is not None:
                    await process.kill()
            finally:
                await asyncio.to_thread(folder.remove)

        what = f"ending sandbox {folder.sandbox_id}"
        async with undone_on_error(undo, what=what, within=_BOUND):
            try:
                options = await asyncio.to_thread(
                    options_for,
                    image,
                    bundle=bundle,
                    folder=folder,
                    added=config.env,
                    config=self.config,
                    mounted=mounted,
                )
            except OSError as error:
                raise ImageError(f"image {image.label} cannot be read: {error}") from error
            command = (*folder.command, *_ARGUMENTS)
            try:
                process = start(program, options, command, tail)
            except OSError as error:
                raise ProviderError(f"bubblewrap ({program}) cannot be started: {error}") from error
            await until_ready(
                folder,
                death=process.ended,
                account=lambda: explain(tail.text()) or account(tail.text()),
                within=self.config.start_timeout,
            )
            below = process.itself.children()
            if not below:
                raise ProviderError(
                    f"sandbox {folder.sandbox_id} has ended; {account(tail.text())}"
                )
            folder.record(SandboxProcesses(below[0], process.itself).facts())
        return handle(folder)

    def diagnose(self) -> Iterable[Finding]:
        """Say which bubblewrap there is, and whether it may make namespaces here."""
        return diagnose(self.config.program)

    async def delete(self, sandbox_id: SandboxId) -> None:
        """End the sandbox and remove its folder; nothing happens when it is gone already."""
        await delete_recorded(
            sandbox_id, self.name, grace=self.config.stop_timeout, within=self.delete_bound
        )

    @property
    def delete_bound(self) -> float:
        """How many seconds ``delete`` may take."""
        return self.config.stop_timeout + _BOUND

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Return a handle of a sandbox that lives; SandboxNotFound when it does not."""
        return get_recorded(sandbox_id, self.name)

    @staticmethod
    def _refuse_limits(config: SandboxConfig) -> None:
        limits = config.resource.requested() if config.resource else []
        if limits:
            raise ProviderError(
                f"bubblewrap cannot limit {' or '.join(limits)}; leave out resource, "
                "or use a provider that can, such as docker"
            )

    def _open(self, config: SandboxConfig, stop: Stop) -> tuple[Path, Image, CachedBundle]:
        """Find everything that a sandbox is made of, and that it fits together."""
        program = find_program(self.config.program)
        try:
            machine = platforms.current().name
        except ValueError as error:
            raise ProviderError(str(error)) from error
        bundle = BundleCache().open(config.bundle, progress=self._progress)
        bundle.check_protocol()
        bundle.check_platform(config.platform or machine)
        built_for = bundle.manifest.platform
        if built_for != machine:
            _require_emulator(bundle, machine)
        image = ImageStore(
            self.config.cache,
            pull=self.config.pull,
            insecure=self.config.insecure_registries,
            progress=self._progress,
            stop=stop,
        ).open(config.image)
        made_for = image.platform or (None if image.host else platform_of(image.root))
        if made_for not in (None, built_for):
            raise ImageError(
                f"image {image.label} is for {made_for}, but the bundle is for {built_for}; "
                f"use an image for {built_for}"
            )
        return program, image, bundle


def _require_emulator(bundle: CachedBundle, machine: str) -> None:
    """Raise ProviderError unless the kernel runs the bundle's programs, in whichever root."""
    built_for = bundle.manifest.platform
    found = emulator(built_for)
    if found is None or not found.everywhere:
        raise ProviderError(
            f"bundle {bundle.manifest.title} is for {built_for}, but this machine is {machine}, "
            f"where nothing emulates the other: build the bundle with --platform {machine}, or "
            "register an emulator with binfmt_misc and the flag F (Debian: qemu-user-static)"
        )
