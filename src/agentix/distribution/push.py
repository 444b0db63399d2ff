"""A bundle to a registry: what it lacks of the layers, then the manifest, then the tags."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix import platforms
from agentix.bundle import BundleCache
from agentix.distribution import artifact, layer
from agentix.distribution.artifact import (
    ARTIFACT,
    INDEX,
    MANIFEST,
    MAX_DOCUMENT,
    MAX_LAYERS,
    TITLE,
    VERSION,
    Descriptor,
    Manifest,
    Platform,
)
from agentix.distribution.place import Place
from agentix.distribution.registry import Registry
from agentix.distribution.seen import Seen
from agentix.errors import BundleError, DistributionError
from agentix.nix import StorePath
from agentix.patience import Patience
from agentix.progress import SILENT
from agentix.ungrouped import ungrouped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentix.bundle import CachedBundle
    from agentix.progress import Progress, Step

_AT_ONCE = 4
_ROUNDS = 20  # of joining what others push at the same time


@dataclass(frozen=True, slots=True)
class PushedBundle:
    """A bundle at a registry.

    ``reference`` names exactly this bundle for ever, ``digest`` (``sha256:…``) is that of its
    manifest there, ``index`` that of what the tag means, and ``bundle`` that of its tar. Of the
    ``layers``, ``sent`` had to be sent (``size`` bytes) and ``mounted`` were in another repository.
    """

    reference: str
    digest: str
    index: str
    bundle: str
    platform: str
    layers: int
    sent: int
    mounted: int
    size: int


def push(
    bundle: str | Path,
    reference: str,
    *,
    compress: bool = True,
    insecure: bool = False,
    progress: Progress = SILENT,
    cache: BundleCache | None = None,
    patience: Patience | None = None,
) -> PushedBundle:
    """Send *bundle*, anything that a cache can open, to *reference* (``REGISTRY/NAME:TAG``).

    The tag then means this bundle on its platform, and what it meant on other platforms if that has
    the same name and version. *compress* sends layers compressed with zstd. *insecure* allows plain
    HTTP with other machines than this one.

    Raises BundleError when the bundle is not sound, DistributionError when the registry does not
    take it; what has been sent by then is not sent again by the next push.
    """
    place = Place.parse(reference)
    if place.digest is not None:
        raise DistributionError(f"cannot push to {place}: a push makes a tag, so give one instead")
    cache = BundleCache() if cache is None else cache
    entry = cache.open(bundle, progress)
    place.tag_for(entry.manifest.platform)  # before anything is sent
    with ungrouped():
        return asyncio.run(
            _push(entry, place, compress, insecure, progress, cache, patience or Patience())
        )


async def _push(
    entry: CachedBundle,
    place: Place,
    compress: bool,
    insecure: bool,
    progress: Progress,
    cache: BundleCache,
    patience: Patience,
) -> PushedBundle:
    bundle = entry.manifest
    total = sum(content.size for content in bundle.closure.values())
    async with Registry(place, write=True, insecure=insecure, patience=patience) as registry:
        with progress.step("push", total=total, unit="bytes") as step:
            seen = Seen(cache.root / "pushed", place)
            sending = _Sending(entry, registry, seen, compress, step)
            layers = await sending.layers()
            await sending.config()
            document = artifact.describe(bundle, entry.digest, layers)
            if len(layers) > MAX_LAYERS or len(document) > MAX_DOCUMENT:
                raise DistributionError(
                    f"cannot push {bundle.title}: it has {len(layers)} store paths, which is more"
                    f" than registries take"
                )
            digest = artifact.digest_of(document)
            await registry.put_manifest(digest, document, MANIFEST)
            await registry.put_manifest(place.tag_for(bundle.platform), document, MANIFEST)
            index = await _publish(registry, bundle.platform)
            step.outcome(f"{sending.sent} of {len(layers)} layers, {sending.size / 1e6:.1f} MB")
    return PushedBundle(
        reference=f"{place.name}@{digest}",
        digest=digest,
        index=index,
        bundle=f"sha256:{entry.digest}",
        platform=bundle.platform,
        layers=len(layers),
        sent=sending.sent,
        mounted=sending.mounted,
        size=sending.size,
    )


class _Sending:
    """The blobs of one bundle on their way."""

    def __init__(
        self, entry: CachedBundle, registry: Registry, seen: Seen, compress: bool, step: Step
    ) -> None:
        self._entry = entry
        self._registry = registry
        self._seen = seen
        self._compress = compress
        self._step = step
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self.sent = 0
        self.mounted = 0
        self.size = 0

    async def layers(self) -> list[Descriptor]:
        """Bring every store path to the registry; return their layers in order."""
        store = self._entry.nix / "store"
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    self._layer(StorePath(store / name, content.sha256, content.size))
                )
                for name, content in sorted(self._entry.manifest.closure.items())
            ]
        found = [task.result() for task in tasks]
        await asyncio.to_thread(self._seen.note, [each.digest for each in found])
        return found

    async def config(self) -> None:
        """Bring the manifest.json to the registry."""
        data = self._entry.manifest.to_bytes()
        digest = artifact.digest_of(data)
        if not await self._registry.has(digest):

            async def body() -> AsyncIterator[bytes]:
                yield data

            await self._registry.upload(digest, len(data), body)

    async def _layer(self, path: StorePath) -> Descriptor:
        async with self._turns:
            try:
                found = await asyncio.to_thread(layer.describe, path, compress=self._compress)
                await self._bring(path, found)
            except BundleError as error:
                raise BundleError(
                    f"cannot push {self._entry.ref}: store path {path.path.name} was altered in the"
                    f" cache; remove {self._entry.path} and deploy the bundle again"
                ) from error
        self._step.advance(path.size)
        return found

    async def _bring(self, path: StorePath, found: Descriptor) -> None:
        if await self._registry.has(found.digest):
            return
        other = self._seen.elsewhere(found.digest)
        if other is not None and await self._registry.mount(found.digest, other):
            self.mounted += 1
            return

        async def body() -> AsyncIterator[bytes]:
            with layer.contents(path, compress=self._compress) as chunks:
                while chunk := await asyncio.to_thread(next, chunks, b""):
                    yield chunk

        await self._registry.upload(found.digest, found.size, body)
        self.sent += 1
        self.size += found.size


async def _publish(registry: Registry, platform: str) -> str:
    """Have the tag mean all that the tags of the single platforms mean; return its digest.

    Only who pushes for a platform writes its tag, and joins them all afterwards, again if any has
    changed meanwhile. So whoever joins last has seen everything, however many push at once.
    """
    joined = b""
    for _ in range(_ROUNDS):
        found = {name: await _tagged(registry, name) for name in platforms.PLATFORMS}
        mine = next((each for name, each in found.items() if name == platform), None)
        if mine is None:
            raise registry.failed("it has not kept the manifest that it was sent")
        same = [each for each in found.values() if each is not None and _alike(each, mine)]
        index = artifact.join(same)
        if index == joined:
            return artifact.digest_of(index)
        await registry.put_manifest(registry.place.tag, index, INDEX)
        joined = index
    raise registry.failed("others push to the same tag all the time")


def _alike(one: Descriptor, other: Descriptor) -> bool:
    """Tell whether two bundles are the same release."""
    return one.annotations == other.annotations


async def _tagged(registry: Registry, platform: str) -> Descriptor | None:
    """Return the entry of an index for what the tag of one *platform* means."""
    found = await registry.manifest(registry.place.tag_for(platform))
    if found is None:
        return None
    try:
        manifest = artifact.parse(Manifest, found[0], "its manifest")
    except DistributionError:
        return None  # somebody else's tag
    if not manifest.is_bundle:
        return None
    system, architecture = platform.split("/")
    kept = manifest.annotations or {}
    return Descriptor(
        media_type=MANIFEST,
        digest=artifact.digest_of(found[0]),
        size=len(found[0]),
        artifact_type=ARTIFACT,
        platform=Platform(os=system, architecture=architecture),
        annotations={key: kept[key] for key in (TITLE, VERSION) if key in kept},
    )
