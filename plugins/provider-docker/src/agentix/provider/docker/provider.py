"""The provider: a sandbox is a container, made whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import threading
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from agentix.errors import ImageError, ProviderError, SandboxNotFound
from agentix.progress import SILENT
from agentix.provider.base import Sandbox, SandboxId, SandboxInfo, SandboxProvider
from agentix.provider.docker import container, images
from agentix.provider.docker.config import DockerProviderConfig
from agentix.provider.docker.engine import TIMEOUT, Engine, address
from agentix.provider.docker.threads import abandonable
from agentix.provider.kit import (
    BundleCache,
    RuntimeFolder,
    account,
    carry_out,
    deploy_locally,
    to_the_end,
    undone_on_error,
    until_ready,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from agentix.progress import Progress
    from agentix.provider.base import DeployedBundle, SandboxConfig
    from agentix.provider.docker.engine import Image
    from agentix.provider.kit import CachedBundle

P = ParamSpec("P")
T = TypeVar("T")

_PREFIX = "docker"
_ID = re.compile(rf"{_PREFIX}-[0-9a-f]+")
_LOOK_EVERY = 0.2
_READ_EVERY = 5  # looks; what a container prints is read less often than whether it lives


class DockerProvider(SandboxProvider):
    """Sandboxes as containers of the Docker engine on this machine."""

    def __init__(
        self, config: DockerProviderConfig | None = None, *, progress: Progress = SILENT
    ) -> None:
        self._choices = config or DockerProviderConfig()
        self._progress = progress
        self._looked_into: set[str] = set()  # ids of images with programs outside /nix

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Start a container from the image and return it once its runtime answers."""
        self._require_docker()
        where = address()
        bundle = await asyncio.to_thread(BundleCache().open, config.bundle, progress=self._progress)
        bundle.check_protocol()
        if config.platform is not None:
            bundle.check_platform(config.platform)
        async with _connected(where) as engine:
            image = await self._image(engine, where, config, bundle)
            folder = RuntimeFolder.create(_PREFIX)

            async def undo() -> None:
                try:
                    await asyncio.to_thread(engine.remove, container.name(folder.sandbox_id))
                finally:
                    await asyncio.to_thread(folder.remove)

            what = f"removing what was made of sandbox {folder.sandbox_id}"
            async with undone_on_error(undo, what=what, within=2 * TIMEOUT):
                folder.record({"engine": where})
                return await self._start(engine, config, image, bundle, folder)

    async def delete(self, sandbox_id: SandboxId) -> None:
        """Stop the container, remove it with its volumes, and remove its folder."""
        folder, where = None, None
        try:
            folder, facts = RuntimeFolder.find(sandbox_id, _PREFIX)
            where = str(facts["engine"])
        except SandboxNotFound:  # a container may be left all the same
            if not _ID.fullmatch(sandbox_id):
                return

        async def end() -> None:
            name = container.name(sandbox_id)
            async with _connected(where or address()) as engine:
                with contextlib.suppress(ProviderError):  # then it is killed, with less ado
                    await asyncio.to_thread(engine.stop, name, grace=self._choices.stop_timeout)
                await asyncio.to_thread(engine.remove, name)
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
        folder, facts = RuntimeFolder.find(sandbox_id, _PREFIX)
        async with _connected(facts["engine"]) as engine:
            state = await _call(engine.state, container.name(sandbox_id))
        if state is None or not state.running:
            raise SandboxNotFound(f"sandbox {sandbox_id} has ended; delete it, or create another")
        return _handle(folder)

    async def deploy_bundle(
        self, path: Path, *, name: str | None = None, platform: str | None = None
    ) -> DeployedBundle:
        """Deploy to this machine's cache, which the engine mounts from."""
        return await deploy_locally(path, name=name, platform=platform, progress=self._progress)

    def _require_docker(self) -> None:
        if self._choices.container_engine != "docker":
            raise ProviderError(
                f"container engine {self._choices.container_engine!r} is not supported in this"
                " version; use 'docker', or the bubblewrap provider, which needs no engine"
            )

    async def _image(
        self, engine: Engine, where: str, config: SandboxConfig, bundle: CachedBundle
    ) -> Image:
        """Return the image, pulled if need be, that goes with the bundle and the engine."""
        platform = bundle.manifest.platform
        found = await _call(engine.image, config.image)
        if found is None:
            await self._pull(where, config.image, platform)
            found = await _call(engine.image, config.image)
            if found is None:
                raise ImageError(f"image {config.image!r} was pulled and is gone again")
        images.require_platforms(
            bundle.manifest.title,
            platform,
            image=config.image,
            found=found,
            engine=await _call(engine.platform),
        )
        if program := images.in_nix(found):
            raise images.hidden(config.image, program)
        return found

    async def _pull(self, where: str, reference: str, platform: str) -> None:
        if error := images.cannot_be_pulled(reference):
            raise error
        if self._choices.pull == "never":
            raise ImageError(
                f"image {reference!r} is not on this machine, and pulling is switched off"
                f" (pull='never'); docker pull {reference} gets it"
            )
        stop = threading.Event()
        with self._progress.step(f"pull {reference}", unit="bytes") as step:

            def advance(amount: int) -> None:
                if not stop.is_set():
                    step.advance(amount)

            def pull() -> None:
                # A connection of its own, since nobody waits for this after a cancellation.
                with Engine(where) as engine:
                    engine.pull(reference, platform, stop, advance)

            try:
                await abandonable(pull, name=f"pull {reference}")
            finally:
                stop.set()

    async def _start(
        self,
        engine: Engine,
        config: SandboxConfig,
        image: Image,
        bundle: CachedBundle,
        folder: RuntimeFolder,
    ) -> Sandbox:
        name = container.name(folder.sandbox_id)
        settings = container.settings(config, image.id, folder)
        host = container.host_settings(self._choices, config.resource, bundle.nix, folder)
        await _call(engine.create, name, settings, host)
        if image.id not in self._looked_into:
            shell = await _call(engine.link_target, name, "/bin/sh")
            if images.is_in_nix(shell):
                raise images.hidden(config.image, f"/bin/sh leads to {shell}")
            self._looked_into.add(image.id)
        await _call(engine.start, name)
        watch = _Watch(engine, name)
        within = self._choices.start_timeout
        await until_ready(folder, death=watch.death, account=watch.account, within=within)
        return _handle(folder)


def _handle(folder: RuntimeFolder) -> Sandbox:
    return Sandbox(SandboxInfo(folder.sandbox_id, folder.url, "running"), token=folder.token)


class _Watch:
    """Looks after a container that is starting: how it ended, and what it printed."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._output = b""

    def account(self) -> str:
        """Return a clause about the output, as of the last look."""
        return account(self._output.decode(errors="replace"))

    async def death(self) -> str:
        """Return how the container ended, once it has."""
        for looks in itertools.count(1):
            await asyncio.sleep(_LOOK_EVERY)
            state = await _call(self._engine.state, self._name)
            if state is None:
                break
            if not state.running or looks % _READ_EVERY == 0:
                self._output = await _call(self._engine.output, self._name)
            if not state.running:
                return state.end
        return "its container was removed"


async def _call(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Ask the engine; when cancelled, wait for its answer first."""
    return await to_the_end(asyncio.to_thread(work, *args, **kwargs))


@contextlib.asynccontextmanager
async def _connected(where: str) -> AsyncIterator[Engine]:
    engine = Engine(where)
    try:
        await _call(engine.connect)
        yield engine
    finally:
        engine.close()
