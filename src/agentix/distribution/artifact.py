"""A bundle as registries keep it: an OCI image manifest whose layers are its store paths.

``config`` is the bundle's ``manifest.json``, byte for byte, and ``layers`` are its store paths in
their order, each a tar, perhaps compressed. A tag names an index of such manifests, one for each
platform. What comes from a registry is foreign, and only what is used of it is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentix.bundle.manifest import MAX_MANIFEST_BYTES
from agentix.bundle.manifest import Manifest as BundleManifest
from agentix.errors import BundleError, DistributionError
from agentix.validation import first_fault

if TYPE_CHECKING:
    from collections.abc import Iterable

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
ARTIFACT = "application/vnd.agentix.bundle.v1"
CONFIG = "application/vnd.agentix.bundle.manifest.v1+json"
LAYER = "application/vnd.agentix.bundle.store-path.v1.tar"
COMPRESSED_LAYER = f"{LAYER}+zstd"
TITLE = "org.opencontainers.image.title"
VERSION = "org.opencontainers.image.version"
DIGEST = "agentix.bundle.digest"  # of the tar, by which a cache knows the bundle

MAX_DOCUMENT = 4 * 1024 * 1024  # what the OCI asks registries to accept
MAX_LAYERS = 10_000

Sha256 = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
_Annotations = dict[str, str]


class _Foreign(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, populate_by_name=True)


class Platform(_Foreign):
    """The platform of one manifest of an index."""

    os: Annotated[str, Field(max_length=64)]
    architecture: Annotated[str, Field(max_length=64)]

    @property
    def name(self) -> str:
        """As bundles are told: ``linux/amd64``."""
        return f"{self.os}/{self.architecture}"


class Descriptor(_Foreign):
    """A reference to a document or a blob: what it is, and exactly which bytes."""

    media_type: Annotated[str, Field(alias="mediaType", max_length=255)]
    digest: Sha256
    size: Annotated[int, Field(ge=0, le=2**53)]
    artifact_type: Annotated[str | None, Field(alias="artifactType")] = None
    platform: Platform | None = None
    annotations: _Annotations | None = None


class _Kind(_Foreign):
    media_type: Annotated[str | None, Field(alias="mediaType")] = None


class Index(_Foreign):
    """The manifests behind one tag."""

    schema_version: Annotated[Literal[2], Field(alias="schemaVersion")]
    manifests: Annotated[tuple[Descriptor, ...], Field(max_length=MAX_LAYERS)]


class Manifest(_Foreign):
    """One bundle."""

    schema_version: Annotated[Literal[2], Field(alias="schemaVersion")]
    artifact_type: Annotated[str | None, Field(alias="artifactType")] = None
    config: Descriptor
    layers: Annotated[tuple[Descriptor, ...], Field(max_length=MAX_LAYERS)]
    annotations: _Annotations | None = None

    @property
    def is_bundle(self) -> bool:
        """Whether this is one of ours at all."""
        return self.config.media_type == CONFIG and self.artifact_type in (None, ARTIFACT)

    @property
    def bundle_digest(self) -> str:
        """The digest (hex) of the bundle's tar, as whoever pushed it said; may be anything."""
        return (self.annotations or {}).get(DIGEST, "").removeprefix("sha256:")


_M = TypeVar("_M", bound=_Foreign)


def is_index(data: bytes, media_type: str) -> bool:
    """Tell whether *data* is an index; *media_type* counts where it does not say so itself."""
    try:
        return (_Kind.model_validate_json(data).media_type or media_type) == INDEX
    except ValidationError:
        return False


def digest_of(data: bytes) -> str:
    """Return how registries call *data*."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def describe(bundle: BundleManifest, digest: str, layers: Iterable[Descriptor]) -> bytes:
    """Return the manifest of *bundle*, whose tar has the *digest* (hex), made of *layers*."""
    config = bundle.to_bytes()
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": ARTIFACT,
        "config": {"mediaType": CONFIG, "digest": digest_of(config), "size": len(config)},
        "layers": [_plain(layer) for layer in layers],
        "annotations": {
            TITLE: bundle.name,
            VERSION: bundle.version,
            DIGEST: f"sha256:{digest}",
        },
    }
    return _written(document)


def join(manifests: Iterable[Descriptor]) -> bytes:
    """Return the index of *manifests*, in their order."""
    document = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "artifactType": ARTIFACT,
        "manifests": [_plain(each) for each in manifests],
    }
    return _written(document)


def parse(kind: type[_M], data: bytes, what: str) -> _M:
    """Read a document of a registry; DistributionError, which begins with *what*, if it is none."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise DistributionError(f"{what} cannot be read: {first_fault(error)}") from error


def parse_config(data: bytes, what: str) -> BundleManifest:
    """Read the ``manifest.json`` of a bundle; DistributionError, which begins with *what*."""
    try:
        manifest = BundleManifest.parse(data, label="its manifest.json")
    except BundleError as error:
        raise DistributionError(f"{what}: {error}") from error
    if manifest.to_bytes() != data:
        raise DistributionError(
            f"{what}: its manifest.json is not written as agentix build writes it"
        )
    return manifest


def check(manifest: Manifest, what: str) -> None:
    """Refuse a *manifest* that is not that of a bundle, before anything that it names is fetched.

    Raises DistributionError, which begins with *what*.
    """
    if not manifest.is_bundle:
        raise DistributionError(
            f"{what} is no bundle but something else, of the type"
            f" {(manifest.artifact_type or manifest.config.media_type)[:80]!r}"
        )
    if not re.fullmatch("[0-9a-f]{64}", manifest.bundle_digest):
        raise DistributionError(f"{what} does not say which bundle it is; push it again")
    if manifest.config.size > MAX_MANIFEST_BYTES:
        raise DistributionError(f"{what}: its manifest.json is above {MAX_MANIFEST_BYTES} bytes")
    for layer in manifest.layers:
        if layer.media_type not in (LAYER, COMPRESSED_LAYER):
            raise DistributionError(
                f"{what} has a layer of the type {layer.media_type[:80]!r}, which this Agentix does"
                " not read; upgrade agentix"
            )


def _plain(descriptor: Descriptor) -> dict[str, Any]:
    return descriptor.model_dump(by_alias=True, exclude_none=True)


def _written(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")
