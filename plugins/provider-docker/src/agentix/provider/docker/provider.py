"""The provider: a sandbox is a container, made whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from agentix.errors import ProviderError, SandboxNotFound
from agentix.progress import SILENT
from agentix.provider.base import Sandbox, SandboxId, SandboxInfo, SandboxProvider
from agentix.provider.docker import (
    container,
    dropping,
    emulation,
    forwarding,
    images,
    limits,
    listing,
    remote,
    stores,
    sweeping,
)
from agentix.provider.docker.address import Address, locate
from agentix.provider.docker.config import DockerProviderConfig
from agentix.provider.docker.diagnosis import diagnose
from agentix.provider.docker.engine import TIMEOUT, Engine
from agentix.provider.docker.leftovers import removed_meanwhile
from agentix.provider.docker.problems import RefusedError
from agentix.provider.docker.shipping import Shipment
from agentix.provider.docker.threads import finished
from agentix.provider.docker.watch import Watch
from agentix.provider.kit import (
    BundleCache,
    RuntimeFolder,
    carry_out,
    deploy_locally,
    hold_lease,
    release_lease,
    stoppable,
    undone_on_error,
    until_ready,
)

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from agentix.progress import Progress
    from agentix.provider.base import DeployedBundle, Finding, ListedSandbox, SandboxConfig
    from agentix.provider.docker.facts import Ability, Image
    from agentix.provider.kit import CachedBundle


class DockerProvider(SandboxProvider):
    """Sandboxes as containers of the Docker engine on this machine."""

    def __init__(
        self, config: DockerProviderConfig | None = None, *, progress: Progress = SILENT
    ) -> None:
        self._choices = config or DockerProviderConfig()
        self.name = self._kind = self._choices.container_engine
        self._progress = progress
        self._abilities: dict[Address, Ability] = {}
        self._low: set[Address] = set()  # engines that cannot give the limits they would

    def diagnose(self) -> Iterable[Finding]:
        """Say which engine there is, and what it may do; none is started."""
        return diagnose(self._kind)

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Start a container from the image and return it once its runtime answers."""
        for again in (True, True, False):
            try:
                return await self._attempt(config)
            except RefusedError as error:
                # Another sandbox has gone, and taken the image with it.
                if not again or error.status != 404 or "image" not in error.reason.lower():
                    raise
        raise AssertionError  # the last attempt returned or raised

    async def _attempt(self, config: SandboxConfig) -> Sandbox:
        where = await asyncio.to_thread(locate, self._kind)
        bundle = await asyncio.to_thread(BundleCache().open, config.bundle, progress=self._progress)
        bundle.check_protocol()
        if config.platform is not None:
            bundle.check_platform(config.platform)
        async with _connected(where) as engine, removed_meanwhile(where, self.delete):
            ability = await self._ability(engine)
            choices = limits.require(self._kind, ability, config.resource, self._choices)
            reference, image = await self._image(engine, config, bundle)
            folder = RuntimeFolder.create(self._kind, config.image, bundle)
            name = container.name(folder.sandbox_id)
            shipment = Shipment(engine, name, bundle, image) if where.remote else None

            async def undo() -> None:
                release_lease(folder.sandbox_id)
                try:
                    await _remove(engine, folder.sandbox_id, folder)
                    if shipment is not None:
                        await asyncio.to_thread(shipment.undo)
                finally:
                    await asyncio.to_thread(forwarding.end, folder.sandbox_id)
                    await asyncio.to_thread(folder.remove)

            what = f"removing what was made of sandbox {folder.sandbox_id}"
            async with undone_on_error(undo, what=what, within=2 * TIMEOUT):
                drop = not self._choices.keep_images and dropping.may_go(where, reference)
                folder.record(
                    {
                        **where.facts(),
                        "drop": reference if drop else None,
                        "lease": self._choices.lease,
                    }
                )
                title, built_for = bundle.manifest.title, bundle.manifest.platform
                with emulation.explained(self._kind, title, built_for, ability.platform):
                    return await self._start(
                        engine, choices, config, image, bundle, folder, shipment
                    )

    async def delete(self, sandbox_id: SandboxId) -> None:
        """Stop the container, remove it with its volumes, and remove its folder."""
        folder: RuntimeFolder | None = None
        where: Address | None = None
        drop: str | None = None
        try:
            folder, facts = RuntimeFolder.find(sandbox_id, self._kind)
            where = Address.of(self._kind, facts)
            drop = facts.get("drop")
        except SandboxNotFound:  # a container may be left all the same
            if not re.fullmatch(rf"{self._kind}-[0-9a-f]+", sandbox_id):
                return

        async def end() -> None:
            release_lease(sandbox_id)  # first: then it ends even if it cannot be asked to
            name = container.name(sandbox_id)
            here = await asyncio.to_thread(locate, self._kind) if where is None else where
            async with _connected(here) as engine:
                with contextlib.suppress(ProviderError):  # then it is killed, with less ado
                    await asyncio.to_thread(engine.stop, name, grace=self._choices.stop_timeout)
                await _remove(engine, sandbox_id, folder)
                if drop is not None and await asyncio.to_thread(engine.drop, drop):
                    dropping.forget(here, drop)
            await asyncio.to_thread(forwarding.end, sandbox_id)
            if folder is not None:  # until here it says which engine to ask again
                await asyncio.to_thread(folder.remove)

        what = f"deleting sandbox {sandbox_id}"
        await carry_out(end(), what=what, within=self.delete_bound)

    @property
    def delete_bound(self) -> float:
        """How many seconds ``delete`` may take: to connect, agree on a version, stop, remove."""
        return self._choices.stop_timeout + 4.0 * TIMEOUT

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Return a new handle of a container that runs, also from another process."""
        folder, facts = RuntimeFolder.find(sandbox_id, self._kind)
        where, name = Address.of(self._kind, facts), container.name(sandbox_id)
        ended = f"sandbox {sandbox_id} has ended; delete it, or create another"
        async with _connected(where) as engine:
            state = await finished(engine.state, name)
            if state is None or not state.running:
                raise SandboxNotFound(ended)
            if where.remote:
                folder = await finished(forwarding.reach, folder, where, name)
            if not await Watch(engine, name).outlives(hold_lease(folder, facts.get("lease"))):
                raise SandboxNotFound(ended)
        return _handle(folder)

    async def list(self) -> builtins.list[ListedSandbox]:
        """Return those with a record on this machine, and containers that have only labels."""
        return await listing.sandboxes(self._kind)

    async def deploy_bundle(
        self, path: Path, *, name: str | None = None, platform: str | None = None
    ) -> DeployedBundle:
        """Deploy to this machine's cache, which the engine mounts from."""
        return await deploy_locally(path, name=name, platform=platform, progress=self._progress)

    async def _image(
        self, engine: Engine, config: SandboxConfig, bundle: CachedBundle
    ) -> tuple[str, Image]:
        """Return the image that goes with the bundle and the engine, and its name there."""
        reference, image = await images.bring(
            engine, config.image, bundle.manifest.platform, self._choices, self._progress
        )
        images.require_platforms(
            bundle.manifest.title,
            bundle.manifest.platform,
            image=config.image,
            found=image,
        )
        return reference, image

    async def _ability(self, engine: Engine) -> Ability:
        known = self._abilities.get(engine.where)
        if known is None:
            known = self._abilities[engine.where] = await finished(engine.ability)
        return known

    async def _start(
        self,
        engine: Engine,
        choices: DockerProviderConfig,
        config: SandboxConfig,
        image: Image,
        bundle: CachedBundle,
        folder: RuntimeFolder,
        shipment: Shipment | None,
    ) -> Sandbox:
        name = container.name(folder.sandbox_id)
        settings = container.settings(self._choices, config, image, folder)
        merged = stores.known(image)
        if merged is None:
            # Without any mount: to look, the engine makes the places where they would be.
            bare = container.host_settings(choices, None, (), folder) | {"mounts": []}
            await self._create(engine, name, settings, bare)
            kind = await finished(engine.kind, name, stores.NIX)
            await finished(engine.remove, name)
            merged = stores.learn(image, config.image, kind)
        source = partial(container.source, choices)
        if shipment is None:
            mounts = stores.mounts(bundle, config.image, source, merged=merged)
            host = container.host_settings(choices, config.resource, mounts, folder)
        else:
            mounts = remote.mounts(bundle, config.image, merged=merged)
            host = container.host_settings(choices, config.resource, (), folder)
            settings, host = remote.settings(settings), host | {"mounts": mounts}
        if engine.where in self._low:
            host = host | {"ulimits": limits.no_higher_than(engine.peer)}
        await self._create(engine, name, settings, host)
        async with contextlib.AsyncExitStack() as telling:
            if shipment is not None:
                await stoppable(partial(shipment.send, progress=self._progress), name=name)
                secret = remote.Secret(engine.where, name, folder)
                telling.callback(secret.close)
                await finished(secret.tell)
            try:
                await self._run(engine, name, settings, host)
            except RefusedError as error:
                if config.resource and config.resource.gpu and "device driver" in error.reason:
                    raise limits.no_gpu(self._kind, config.resource.gpu, error.reason) from error
                raise
            if shipment is not None:
                folder = await finished(forwarding.reach, folder, engine.where, name)
            watch = Watch(engine, name)
            within = self._choices.start_timeout
            await until_ready(folder, death=watch.death, account=watch.account, within=within)
        await hold_lease(folder, self._choices.lease)
        return _handle(folder)

    async def _create(
        self, engine: Engine, name: str, settings: dict[str, Any], host: dict[str, Any]
    ) -> None:
        limits.kept(self._kind, await finished(engine.create, name, settings, host))

    async def _run(
        self, engine: Engine, name: str, settings: dict[str, Any], host: dict[str, Any]
    ) -> None:
        try:
            await finished(engine.start, name)
        except RefusedError as error:
            if "ulimits" in host or not limits.are_too_high(error.reason):
                raise
            self._low.add(engine.where)
            await finished(engine.remove, name)
            lower = host | {"ulimits": limits.no_higher_than(engine.peer)}
            await self._create(engine, name, settings, lower)
            await finished(engine.start, name)


class PodmanProvider(DockerProvider):
    """Sandboxes as containers of Podman, whose service is started where none runs."""

    def __init__(
        self, config: DockerProviderConfig | None = None, *, progress: Progress = SILENT
    ) -> None:
        choices = config or DockerProviderConfig()
        super().__init__(
            choices.model_copy(update={"container_engine": "podman"}), progress=progress
        )


async def _remove(engine: Engine, sandbox_id: str, folder: RuntimeFolder | None) -> None:
    """Remove the container, and first what only the engine can of its folder."""
    name = container.name(sandbox_id)
    if folder is not None and os.getuid() != 0:
        with contextlib.suppress(ProviderError):  # what stays is complained of by who removes it
            await asyncio.to_thread(engine.stop, name, grace=0)
            await asyncio.to_thread(sweeping.empty, engine, name, folder.mount)
    await asyncio.to_thread(engine.remove, name)


def _handle(folder: RuntimeFolder) -> Sandbox:
    return Sandbox(SandboxInfo(folder.sandbox_id, folder.url, "running"), token=folder.token)


@contextlib.asynccontextmanager
async def _connected(where: Address) -> AsyncIterator[Engine]:
    engine = Engine(where)
    try:
        await finished(engine.connect)
        yield engine
    finally:
        engine.close()
