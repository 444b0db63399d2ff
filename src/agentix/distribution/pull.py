"""A bundle from a registry: into the cache, or into the very file that was pushed.

Nothing that a registry says is believed. The tar is put together from the layers as they come, and
goes through the reader that every tar goes through; and every document and layer must have the
digest by which it was asked for.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix import platforms
from agentix.bundle import BundleCache
from agentix.bundle.compression import SUFFIX, Compressor
from agentix.bundle.folder import write_all
from agentix.bundle.frame import beginning, ending
from agentix.bundle.parts import store_tar
from agentix.bundle.reader import read_bundle
from agentix.bundle.room import check_room
from agentix.bundle.writer import replacing_whole
from agentix.distribution import artifact
from agentix.distribution.artifact import (
    COMPRESSED_LAYER,
    MANIFEST,
    Descriptor,
    Index,
    Manifest,
)
from agentix.distribution.background import background
from agentix.distribution.download import Downloads
from agentix.distribution.layer import joined, tar_of
from agentix.distribution.place import Place
from agentix.distribution.registry import Registry
from agentix.errors import BundleError, DistributionError
from agentix.patience import Patience
from agentix.progress import SILENT
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from agentix.bundle.manifest import Manifest as BundleManifest
    from agentix.distribution.background import Background
    from agentix.progress import Progress


@dataclass(frozen=True, slots=True)
class PulledBundle:
    """A bundle that was fetched.

    ``path`` is the folder of the cache or the file that was asked for, ``bundle`` the digest
    (``sha256:…``) of its tar, ``reference`` names exactly it at the registry for ever. Of the
    ``layers``, ``fetched`` were not here (``size`` bytes).
    """

    path: Path
    reference: str
    bundle: str
    name: str
    version: str
    platform: str
    layers: int
    fetched: int
    size: int


def pull(
    reference: str,
    *,
    platform: str | None = None,
    output: Path | None = None,
    insecure: bool = False,
    progress: Progress = SILENT,
    cache: BundleCache | None = None,
    patience: Patience | None = None,
) -> PulledBundle:
    """Fetch the bundle at *reference* (``REGISTRY/NAME:TAG`` or ``REGISTRY/NAME@sha256:…``).

    It is deployed into the cache; with *output*, a file or a folder, its tar is written there, the
    same bytes as were pushed (compressed, if *output* ends in ``.zst``). *platform* chooses, where
    there are bundles for several; this machine's by default. Store paths that the cache has are
    not fetched. *insecure* allows plain HTTP with other machines than this one.

    Raises DistributionError when the registry does not give it, BundleError when it is not what it
    should be or cannot be kept; then nothing half-made stays.
    """
    place = Place.parse(reference)
    cache = BundleCache() if cache is None else cache
    wanted = None if platform is None else _known_platform(platform)
    with _connected(place, insecure, patience or Patience()) as (registry, running):
        offer = running.wait(_find(registry, wanted))
        total = sum(layer.size for layer in offer.layers)
        with progress.step("pull", total=total, unit="bytes") as step:
            source = _Source(offer, registry, running, step.advance)
            if output is None:
                entry = cache.deploy_stream(
                    offer.bundle, source.tar, expect=offer.digest, what=str(place)
                )
                path = entry.path
            else:
                path = _write(offer, source, cache, output)
            step.outcome(
                f"{source.fetched} of {len(offer.layers)} layers, {source.size / 1e6:.1f} MB"
            )
    return PulledBundle(
        path=path,
        reference=offer.reference,
        bundle=f"sha256:{offer.digest}",
        name=offer.bundle.name,
        version=offer.bundle.version,
        platform=offer.bundle.platform,
        layers=len(offer.layers),
        fetched=source.fetched,
        size=source.size,
    )


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a registry says that it has; ``digest`` (hex) is said to be that of the tar."""

    reference: str
    digest: str
    bundle: BundleManifest
    layers: tuple[Descriptor, ...]


@contextmanager
def _connected(
    place: Place, insecure: bool, patience: Patience
) -> Iterator[tuple[Registry, Background]]:
    with background("registry") as running:
        registry = Registry(place, write=False, insecure=insecure, patience=patience)
        running.wait(registry.__aenter__())
        try:
            yield registry, running
        finally:
            running.wait(registry.__aexit__())


async def _find(registry: Registry, platform: str | None) -> _Offer:
    """Ask what there is, and refuse what cannot be a bundle before any of it is fetched."""
    place = registry.place
    what = str(place)
    found = await registry.manifest(f"sha256:{place.digest}" if place.digest else place.tag)
    if found is None:
        raise DistributionError(f"{place.host} has no {what}; check the name and the tag")
    data, kind = found
    if artifact.is_index(data, kind):
        platform = platform or _this_machine()
        chosen = _suiting(artifact.parse(Index, data, f"{what}: its index"), platform, what)
        found = await registry.manifest(chosen.digest)
        if found is None or len(found[0]) != chosen.size:
            raise DistributionError(f"{what}: {chosen.digest}, which its index names, is not there")
        data = found[0]
    manifest = artifact.parse(Manifest, data, f"{what}: its manifest")
    artifact.check(manifest, what)
    config = await registry.blob(manifest.config.digest, manifest.config.size)
    bundle = artifact.parse_config(config, what)
    if len(manifest.layers) != len(bundle.closure):
        raise DistributionError(
            f"{what} has {len(manifest.layers)} layers for {len(bundle.closure)} store paths"
        )
    if platform is not None and bundle.platform != platform:
        raise DistributionError(f"{what} is for {bundle.platform}, not for {platform}")
    return _Offer(
        reference=f"{place.name}@{artifact.digest_of(data)}",
        digest=manifest.bundle_digest,
        bundle=bundle,
        layers=manifest.layers,
    )


def _suiting(index: Index, platform: str, what: str) -> Descriptor:
    others = []
    for each in index.manifests:
        if each.platform is None or each.media_type != MANIFEST:
            continue
        if each.platform.name == platform:
            return each
        others.append(each.platform.name)
    raise DistributionError(
        f"{what} is for {plain(', '.join(others)) or 'nothing'}, not for {platform};"
        " choose with --platform, or push a bundle for it under the same tag"
    )


def _this_machine() -> str:
    try:
        return platforms.current().name
    except ValueError as error:
        raise DistributionError(f"{error}; choose a bundle with --platform") from error


def _known_platform(platform: str) -> str:
    try:
        return platforms.parse(platform).name
    except ValueError as error:
        raise DistributionError(str(error)) from error


class _Source:
    """The tar of what was offered, made of layers and of what is here of it."""

    def __init__(
        self,
        offer: _Offer,
        registry: Registry,
        running: Background,
        advance: Callable[[int], object],
    ) -> None:
        self._offer = offer
        self._registry = registry
        self._running = running
        self._advance = advance
        self.fetched = 0
        self.size = 0

    def tar(self, known: Mapping[str, Path]) -> Iterator[bytes]:
        """Yield the tar; *known* says where store paths are, by name, that are not to be fetched.

        Raises DistributionError for what cannot be fetched, or is not what was asked for.
        """
        bundle = self._offer.bundle
        layers = list(zip(sorted(bundle.closure), self._offer.layers, strict=True))
        lacking = [layer for name, layer in layers if name not in known]
        downloads = Downloads(self._registry, self._running, lacking, self._advance)
        self.fetched, self.size = len(lacking), sum(layer.size for layer in lacking)
        yield beginning(bundle)
        for name, layer in layers:
            if name in known:
                yield from joined(store_tar(known[name], f"nix/store/{name}"))
                self._advance(layer.size)
            else:
                compressed = layer.media_type == COMPRESSED_LAYER
                yield from tar_of(downloads.next(), compressed=compressed)
        yield ending(bundle)


def _write(offer: _Offer, source: _Source, cache: BundleCache, output: Path) -> Path:
    """Write the tar to the file *output*, or into that folder, once all of it has proved right."""
    if output.is_dir():
        bundle = offer.bundle
        platform = bundle.platform.replace("/", "-")
        output = output / f"{bundle.name}-{bundle.version}-{platform}.bundle.tar"
    compressor = Compressor() if output.name.endswith(SUFFIX) else None
    size = sum(content.size for content in offer.bundle.closure.values())
    with cache.sharing(offer.bundle) as known, replacing_whole(output) as file:
        if compressor is None:
            check_room(output.parent, size)

        def kept() -> Iterator[bytes]:
            for chunk in source.tar(known):
                write_all(file, compressor.compress(chunk) if compressor else chunk)
                yield chunk

        try:
            read = read_bundle(kept(), None)
        except BundleError as error:
            raise BundleError(f"cannot pull {offer.reference}: {error}") from error
        if read.sha256 != offer.digest:
            raise BundleError(
                f"cannot pull {offer.reference}: its tar is sha256-{read.sha256}, not"
                f" sha256-{offer.digest} as it says"
            )
        if compressor:
            write_all(file, compressor.finish())
    return output
