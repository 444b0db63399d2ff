"""The provider: one Apptainer a sandbox, owned by the process that created it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from agentix import platforms
from agentix.errors import ImageError, ProviderError
from agentix.provider.apptainer.config import ApptainerProviderConfig
from agentix.provider.apptainer.diagnosis import explain
from agentix.provider.apptainer.images import open_image
from agentix.provider.apptainer.launching import NAME, script_for, shell_of
from agentix.provider.apptainer.limits import check_limits, limits_of
from agentix.provider.apptainer.options import options_for, user_of
from agentix.provider.apptainer.program import environment, find_program, version_of
from agentix.provider.base import Finding, Sandbox, SandboxConfig, SandboxId, SandboxProvider
from agentix.provider.kit import (
    MOUNT,
    BundleCache,
    HostedProcess,
    ImageStore,
    OutputTail,
    ProcessRef,
    RuntimeFolder,
    SandboxProcesses,
    account,
    delete_recorded,
    get_recorded,
    handle,
    remove_leftovers,
    stoppable,
    undone_on_error,
    until_ready,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agentix.provider.apptainer.images import Opened
    from agentix.provider.base import SandboxResource
    from agentix.provider.kit import CachedBundle, Stop

_BOUND = 30.0  # seconds, beyond the grace that a sandbox is given, to be rid of it


@dataclass(frozen=True, slots=True)
class _Parts:
    """Everything that a sandbox is made of."""

    program: Path
    bundle: CachedBundle
    image: Opened


class ApptainerProvider(SandboxProvider):
    """Makes sandboxes with Apptainer: rootless, without a daemon.

    ``image`` is a SIF file, the folder of a root file system, an archive by ``docker save`` or
    ``skopeo``, or what a registry calls it. A sandbox ends with the process that created it, at the
    latest; meanwhile other processes of the same user can ``get`` and ``delete`` it.
    """

    name = "apptainer"

    def __init__(self, config: ApptainerProviderConfig | None = None) -> None:
        self.config = config or ApptainerProviderConfig()

    def diagnose(self) -> Iterable[Finding]:
        """Say which Apptainer there is; whether it may make namespaces shows when it is used."""
        program = find_program(self.config.program)
        yield Finding("ok", f"{version_of(program)}, {program}")

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Return a new sandbox that answers.

        Raises ImageError, BundleError, or ProviderError when Apptainer cannot run here, or cannot
        do what *config* asks for.
        """
        limits = limits_of(config)
        remove_leftovers(self.name)
        parts = await stoppable(partial(self._find, config), name="agentix-apptainer")
        folder = RuntimeFolder.create(self.name, config.image, parts.bundle)
        process: HostedProcess | None = None

        async def undo() -> None:
            try:
                if process is not None:
                    await process.kill()
            finally:
                await asyncio.to_thread(folder.remove)

        what = f"ending sandbox {folder.sandbox_id}"
        async with undone_on_error(undo, what=what, within=_BOUND):
            tail = OutputTail()
            try:
                command = await asyncio.to_thread(self._command, parts, folder, config, limits)
            except OSError as error:
                raise ProviderError(
                    f"cannot write what sandbox {folder.sandbox_id} needs: {error}"
                ) from error
            scratch = folder.path / "tmp"
            try:
                process = HostedProcess.start(command, tail=tail, env=environment(scratch))
            except OSError as error:
                raise ProviderError(
                    f"apptainer ({parts.program}) cannot be started: {error}"
                ) from error
            await until_ready(
                folder,
                death=process.ended,
                account=lambda: explain(tail.text()) or account(tail.text()),
                within=self.config.start_timeout,
            )
            first, helpers = _below(process.itself)
            if first is None:
                raise ProviderError(
                    f"sandbox {folder.sandbox_id} has ended; {account(tail.text())}"
                )
            if limits is not None:
                check_limits(limits, first)
            processes = SandboxProcesses(first, process.itself, tuple(helpers))
            folder.record(processes.facts())
        return handle(folder)

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

    def _find(self, config: SandboxConfig, stop: Stop) -> _Parts:
        """Find everything that a sandbox is made of, and that it fits together."""
        program = find_program(self.config.program)
        try:
            machine = platforms.current().name
        except ValueError as error:
            raise ProviderError(str(error)) from error
        bundle = BundleCache().open(config.bundle)
        bundle.check_protocol()
        bundle.check_platform(config.platform or machine)
        if bundle.manifest.platform != machine:
            raise ProviderError(
                f"bundle {bundle.manifest.title} is for {bundle.manifest.platform}, "
                f"but this machine is {machine}; apptainer emulates nothing"
            )
        store = ImageStore(
            self.config.cache,
            pull=self.config.pull,
            insecure=self.config.insecure_registries,
            stop=stop,
        )
        image = open_image(config.image, store)
        if image.platform not in (None, machine):
            raise ImageError(
                f"image {image.label} is for {image.platform}, but the bundle and this machine are "
                f"for {machine}; use an image for {machine}"
            )
        return _Parts(program, bundle, image)

    def _command(
        self,
        parts: _Parts,
        folder: RuntimeFolder,
        config: SandboxConfig,
        limits: SandboxResource | None,
    ) -> list[str]:
        """Return what to start on the host, and write what that starts in the sandbox."""
        shell = shell_of(parts.bundle)
        runtime = (*folder.command, "--end-with-stdin")
        script = script_for(
            parts.image, uid=user_of(self.config), added=config.env, command=runtime
        )
        start = folder.mount / NAME
        start.touch(mode=0o600, exist_ok=False)
        start.write_bytes(os.fsencode(script))
        (folder.path / "tmp").mkdir(mode=0o700)
        options = options_for(
            parts.image, bundle=parts.bundle, folder=folder, limits=limits, config=self.config
        )
        run = (shell, "sh", f"{MOUNT}/{NAME}")
        return [str(parts.program), "exec", *options, str(parts.image.path), *run]


def _below(launcher: ProcessRef) -> tuple[ProcessRef | None, list[ProcessRef]]:
    """Return the first process of the sandbox, somewhere below *launcher*, and all beside it.

    Those are what mounts a SIF file. They end with Apptainer, but not if that is killed.
    """
    first, helpers = None, []
    waiting = launcher.children()
    while waiting:
        process = waiting.pop(0)
        if process.heads_a_namespace():
            first = process
        else:
            helpers.append(process)
            waiting += process.children()
    return first, helpers
