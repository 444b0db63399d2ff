"""Image archives: what ``docker save`` and ``skopeo`` write, and plain root file systems.

Reading gives a value: where the layers are, what they must hash to, and the configuration. Nothing
is unpacked here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from agentix.errors import ImageError
from agentix.provider.images.formats import (
    INDEX_TYPES,
    MAX_JSON,
    Descriptor,
    DockerImage,
    ImageDescription,
    Index,
    Manifest,
    parse,
)
from agentix.provider.images.tars import DAMAGED, Tar
from agentix.text import plain

if TYPE_CHECKING:
    from pathlib import Path

_MOST_NESTED = 4
_ROOT_FOLDERS = frozenset(("bin", "dev", "etc", "home", "lib", "proc", "root", "tmp", "usr", "var"))
M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: a member of the archive (None: the archive itself), and its SHA-256 as two hexes.

    ``packed`` is that of the member as it is, ``unpacked`` that of the tar in it; None is unknown.
    """

    member: str | None
    packed: str | None = None
    unpacked: str | None = None


@dataclass(frozen=True, slots=True)
class ArchivedImage:
    """An image as an archive describes it; ``digest`` (hex) identifies all that it says.

    ``configuration`` is the description as it is; a root file system alone has none.
    """

    digest: str | None
    layers: tuple[Layer, ...]
    description: ImageDescription
    configuration: bytes | None = None


def describe(path: Path, architecture: str) -> ArchivedImage:
    """Read what the archive at *path* holds, for *architecture* where it holds several.

    Raises ImageError when it is no archive, or does not hold exactly one image.
    """
    try:
        with Tar.open(path) as archive:
            return _Archive(path, archive).describe(architecture)
    except (*DAMAGED, OSError) as error:
        reason = plain(str(error).partition("\n")[0].rstrip(":"))  # not each kind that was tried
        raise ImageError(
            f"image {path} is no tar archive that can be read ({reason}); give a root file system, "
            "or what `docker save` or `skopeo copy … oci-archive:…` wrote"
        ) from error


class _Archive:
    def __init__(self, path: Path, archive: Tar) -> None:
        self._path = path
        self._archive = archive

    def describe(self, architecture: str) -> ArchivedImage:
        names = self._top_level()
        if names is not None and {"oci-layout", "index.json"} <= names:
            return self._oci(architecture)
        if names == {"manifest.json", "nix"}:
            raise ImageError(
                f"image {self._path} is a bundle, not an image; give it as the bundle, and as the "
                "image what its functions are to run in"
            )
        if names is not None and "manifest.json" in names:
            return self._docker()
        return ArchivedImage(None, (Layer(None),), ImageDescription())

    def _top_level(self) -> set[str] | None:
        """Return the names at the top; None as soon as they are those of a root file system.

        That may hold 100,000 names, and is about to be read once more.
        """
        names = set()
        for member in self._archive:
            name = _clean(member.name).partition("/")[0]
            if name in _ROOT_FOLDERS:
                return None
            names.add(name)
        return names

    def _docker(self) -> ArchivedImage:
        images = self._parse(tuple[DockerImage, ...], self._read("manifest.json"), "manifest.json")
        if len(images) != 1:
            raise ImageError(f"image {self._path} holds {len(images)} images; save one of them")
        content = self._read(images[0].config)
        description = self._parse(ImageDescription, content, images[0].config)
        digests = description.rootfs.diff_ids
        if len(digests) != len(images[0].layers):
            raise ImageError(f"image {self._path} does not hold the layers that it describes")
        layers = tuple(
            Layer(member, unpacked=_hex(digest))
            for member, digest in zip(images[0].layers, digests, strict=True)
        )
        digest = hashlib.sha256(content).hexdigest()
        return ArchivedImage(digest, layers, description, content)

    def _oci(self, architecture: str) -> ArchivedImage:
        index = self._parse(Index, self._read("index.json"), "index.json")
        descriptor = self._choose(index, architecture)
        manifest = self._parse(Manifest, self._blob(descriptor), "manifest")
        content = self._blob(manifest.config)
        description = self._parse(ImageDescription, content, "configuration")
        digests = description.rootfs.diff_ids
        if len(digests) != len(manifest.layers):
            raise ImageError(f"image {self._path} does not hold the layers that it describes")
        layers = tuple(
            Layer(_member(layer), packed=_hex(layer.digest), unpacked=_hex(digest))
            for layer, digest in zip(manifest.layers, digests, strict=True)
        )
        return ArchivedImage(_hex(descriptor.digest), layers, description, content)

    def _choose(self, index: Index, architecture: str) -> Descriptor:
        """Return the one manifest of *index* for *architecture*."""
        for _ in range(_MOST_NESTED):
            candidates = index.suiting(architecture, image=str(self._path))
            if len(candidates) > 1:
                raise ImageError(
                    f"image {self._path} holds {len(candidates)} images; save one of them"
                )
            if candidates[0].media_type not in INDEX_TYPES:
                return candidates[0]
            index = self._parse(Index, self._blob(candidates[0]), "index")
        raise ImageError(f"image {self._path} has an index in an index, again and again")

    def _blob(self, descriptor: Descriptor) -> bytes:
        content = self._read(_member(descriptor))
        if hashlib.sha256(content).hexdigest() != _hex(descriptor.digest):
            raise ImageError(f"image {self._path} is damaged: it alters {descriptor.digest}")
        return content

    def _read(self, name: str) -> bytes:
        file = self._archive.content(name)
        if file is None:
            raise ImageError(f"image {self._path} lacks {plain(name)!r}; save it again")
        content = file.read(MAX_JSON + 1)
        if len(content) > MAX_JSON:
            raise ImageError(
                f"image {self._path} has a description too long to be one, {plain(name)!r}"
            )
        return content

    def _parse(self, kind: type[M], content: bytes, what: str) -> M:
        return parse(kind, content, image=str(self._path), what=what)


def _clean(name: str) -> str:
    return name.removeprefix("./").rstrip("/")


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _member(descriptor: Descriptor) -> str:
    return f"blobs/sha256/{_hex(descriptor.digest)}"
