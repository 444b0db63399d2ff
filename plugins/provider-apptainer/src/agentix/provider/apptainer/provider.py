"""The provider: one Apptainer a sandbox, owned by the process that created it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from agentix.errors import ProviderError
from agentix.provider.apptainer.config import ApptainerProviderConfig
from agentix.provider.apptainer.diagnosis import explain
from agentix.provider.apptainer.images import open_image
from agentix.provider.apptainer.launching import NAME, script_for, shell_of
from agentix.provider.apptainer.limits import check_limits, limits_of
from agentix.provider.apptainer.options import options_for, user_of
from agentix.provider.apptainer.program import environment, find_program, version_of
from agentix.provider.base import Finding
from agentix.provider.kit import (
    MOUNT,
    HostedProcess,
    ImageStore,
    LocalProvider,
    OutputTail,
    ProcessRef,
    SandboxProcesses,
    account,
    remove_leftovers,
    stoppable,
    until_ready,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agentix.provider.apptainer.images import Opened
    from agentix.provider.base import Sandbox, SandboxConfig, SandboxResource
    from agentix.provider.kit import CachedBundle, RuntimeFolder, Stop


@dataclass(frozen=True, slots=True)
class _Parts:
    """Everything that a sandbox is made of."""

    program: Path
    bundle: CachedBundle
    image: Opened


class ApptainerProvider(LocalProvider):
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
        async with self.making(config.image, parts.bundle) as making:
            folder = making.folder
            tail = OutputTail()
            try:
                command = await asyncio.to_thread(self._command, parts, folder, config, limits)
            except OSError as error:
                raise ProviderError(
                    f"cannot write what sandbox {folder.sandbox_id} needs: {error}"
                ) from error
            scratch = folder.path / "tmp"
            try:
                making.process = process = HostedProcess.start(
                    command, tail=tail, env=environment(scratch)
                )
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
            return making.finish(SandboxProcesses(first, process.itself, tuple(helpers)))

    @property
    def grace(self) -> float:
        """How many seconds a sandbox has to end by itself when it is deleted."""
        return self.config.stop_timeout

    def _find(self, config: SandboxConfig, stop: Stop) -> _Parts:
        """Find everything that a sandbox is made of, and that it fits together."""
        program = find_program(self.config.program)
        bundle = self.open_bundle(config)
        store = ImageStore(
            self.config.cache,
            pull=self.config.pull,
            insecure=self.config.insecure_registries,
            stop=stop,
        )
        image = open_image(config.image, store)
        self.refuse_foreign(image.label, image.platform, bundle)
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
