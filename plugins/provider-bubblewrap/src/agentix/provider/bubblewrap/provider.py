"""The provider: one bubblewrap a sandbox, owned by the process that created it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from agentix.errors import ImageError, ProviderError
from agentix.progress import SILENT
from agentix.provider.bubblewrap.config import BubblewrapProviderConfig
from agentix.provider.bubblewrap.diagnosis import diagnose, explain, refused_overlay
from agentix.provider.bubblewrap.layout import mounts
from agentix.provider.bubblewrap.options import WORKING_FOLDER, options_for
from agentix.provider.bubblewrap.process import start
from agentix.provider.bubblewrap.program import find_program
from agentix.provider.kit import (
    ImageStore,
    LocalProvider,
    OutputTail,
    SandboxProcesses,
    account,
    emulator,
    platform_of,
    remove_leftovers,
    stoppable,
    until_ready,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agentix.progress import Progress
    from agentix.provider.base import Finding, Sandbox, SandboxConfig
    from agentix.provider.bubblewrap.layout import Mounts
    from agentix.provider.kit import CachedBundle, Image, Stop

# Standard input ends when this process does, and that ends the sandbox. Not --die-with-parent: it
# would kill bubblewrap at work, and leave what waits for it.
_END = "--end-with-stdin"


class BubblewrapProvider(LocalProvider):
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
        self.refuse_limits(config)
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
        async with self.making(config.image, bundle) as making:
            folder = making.folder
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
            # bubblewrap sets PWD; engines do not.
            unset = () if WORKING_FOLDER in options else ("--unset", "PWD")
            command = (*folder.command, *unset, _END)
            try:
                making.process = process = start(program, options, command, tail)
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
            return making.finish(SandboxProcesses(below[0], process.itself))

    def diagnose(self) -> Iterable[Finding]:
        """Say which bubblewrap there is, and whether it may make namespaces here."""
        return diagnose(self.config.program)

    def check_machine(self, bundle: CachedBundle, machine: str) -> None:
        """Raise ProviderError unless the kernel runs the bundle's programs, in whichever root."""
        built_for = bundle.manifest.platform
        if built_for == machine:
            return
        found = emulator(built_for)
        if found is None or not found.everywhere:
            raise ProviderError(
                f"bundle {bundle.manifest.title} is for {built_for}, but this machine is "
                f"{machine}, where nothing emulates the other: build the bundle with --platform "
                f"{machine}, or register an emulator with binfmt_misc and the flag F (Debian: "
                "qemu-user-static)"
            )

    @property
    def grace(self) -> float:
        """How many seconds a sandbox has to end by itself when it is deleted."""
        return self.config.stop_timeout

    def _open(self, config: SandboxConfig, stop: Stop) -> tuple[Path, Image, CachedBundle]:
        """Find everything that a sandbox is made of, and that it fits together."""
        program = find_program(self.config.program)
        bundle = self.open_bundle(config, progress=self._progress)
        image = ImageStore(
            self.config.cache,
            pull=self.config.pull,
            insecure=self.config.insecure_registries,
            progress=self._progress,
            stop=stop,
        ).open(config.image)
        made_for = image.platform or (None if image.host else platform_of(image.root))
        self.refuse_foreign(image.label, made_for, bundle)
        return program, image, bundle
