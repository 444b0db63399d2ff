"""Task images: what ``SandboxConfig.image`` may be here, and archives unpacked once each.

In the cache::

    <cache>/images/sha256-<hex>/    rootfs/, and image.json, the image's configuration
    <cache>/images/known/           which archive holds which image
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from pydantic import ValidationError

from agentix import platforms
from agentix.bundle.memory import Memory
from agentix.bundle.removal import remove
from agentix.bundle.staging import hold
from agentix.errors import ImageError
from agentix.folders import cache_root, what_to_do
from agentix.provider.images.archive import ImageDescription, RunConfig, describe
from agentix.provider.images.tars import DAMAGED, Tar
from agentix.provider.images.unpack import Unpacker
from agentix.text import plain

if TYPE_CHECKING:
    from agentix.provider.images.archive import Layer

HOST = "host"
_ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class Image:
    """A root file system, and how its programs are meant to run.

    ``platform`` is what the image says it is made for, such as ``linux/arm64``, if it says so.
    """

    label: str
    root: Path
    run: RunConfig = field(default_factory=RunConfig)
    platform: str | None = None
    host: bool = False


class ImageStore:
    """Opens images; what is unpacked is kept below *root*, the user's cache if not given.

    Methods block, for as long as unpacking takes.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = (root or cache_root()).absolute()
        self._images = self._root / "images"
        self._known = Memory(self._images / "known")

    def open(self, ref: str) -> Image:
        """Return the image called *ref*: ``host``, or the path of a root file system or archive.

        Raises ImageError when there is none, or it cannot be used.
        """
        if ref == HOST:
            return Image(HOST, Path("/"), host=True)
        path = Path(os.path.realpath(ref))
        if path == Path("/"):
            return Image(HOST, path, host=True)
        try:
            if path.is_dir():
                os.scandir(path).close()
                return Image(ref, path)
            found = path.is_file()
        except OSError as error:
            raise ImageError(f"cannot read image {ref}: {error.strerror or error}") from error
        if found:
            return self._open_archive(ref, path)
        raise ImageError(
            f"image {ref!r} is neither 'host', nor a root file system's folder, nor an archive; "
            "bubblewrap pulls no images: `docker save` or `skopeo copy` one into a file, "
            "or use the docker provider"
        )

    def _open_archive(self, ref: str, path: Path) -> Image:
        try:
            status = path.stat()
            known = self._known.recall(status)
            if known is not None and (image := self._find(ref, known)) is not None:
                return image
            digest = self._unpack(path)
            self._known.remember(status, path.stat(), digest)
        except OSError as error:
            raise ImageError(
                f"cannot unpack image {path} into {self._images}: {error.strerror or error}; "
                f"{what_to_do(error)}"
            ) from error
        image = self._find(ref, digest)
        if image is None:
            raise ImageError(f"image {path} was removed from {self._images} while it was used")
        return image

    def _find(self, ref: str, digest: str) -> Image | None:
        entry = self._images / f"sha256-{digest}"
        try:
            content = (entry / "image.json").read_bytes()
            description = ImageDescription.model_validate_json(content)
        except (OSError, ValidationError):
            return None
        named = bool(description.architecture)
        platform = f"{description.os}/{description.architecture}" if named else None
        run = description.config or RunConfig()
        return Image(ref, entry / "rootfs", run, platform)

    def _unpack(self, path: Path) -> str:
        """Unpack the archive at *path*, unless the image in it is here; return its digest."""
        image = describe(path, platforms.current().debian)
        digest = image.digest or _sha256(path)
        entry = self._images / f"sha256-{digest}"
        if self._find("", digest) is not None:
            return digest
        self._images.mkdir(parents=True, exist_ok=True)
        with hold(self._root / "staging", f"image-{digest[:32]}") as folder:
            if self._find("", digest) is not None:
                return digest
            root = folder / "new" / "rootfs"
            root.mkdir(parents=True)
            for made in (root.parent, root):
                made.chmod(0o755)
            unpacker = Unpacker(root)
            with Tar.open(path) as archive:
                for layer in image.layers:
                    self._apply(path, archive, layer, unpacker)
            unpacker.finish()
            file = root.parent / "image.json"
            file.write_text(image.description.model_dump_json(by_alias=True))
            file.chmod(0o644)
            remove(entry)  # not complete, or it would have been found
            root.parent.rename(entry)
        return digest

    @staticmethod
    def _apply(path: Path, archive: Tar, layer: Layer, unpacker: Unpacker) -> None:
        name = plain(layer.member or path.name)
        member = path.open("rb") if layer.member is None else archive.content(layer.member)
        if member is None:
            raise ImageError(f"image {path} lacks the layer {name!r}; save it again")
        try:
            with member:
                packed = _Hashing(member, layer.packed)
                with io.BufferedReader(packed) as buffered, _decompressed(buffered) as tar:
                    unpacked = _Hashing(tar, layer.unpacked)
                    unpacker.apply(cast("IO[bytes]", unpacked))
                    unpacked.check()
                    packed.check()
        except ImageError as error:
            raise ImageError(f"image {path} cannot be used: layer {name}: {error}") from error
        except DAMAGED as error:
            raise ImageError(f"image {path} is damaged: layer {name}: {error}") from error


class _Hashing(io.RawIOBase):
    """A stream that is hashed while it is read, to be checked once it has been read to its end."""

    def __init__(self, source: IO[bytes], expected: str | None) -> None:
        self._source = source
        self._expected = expected
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]  # RawIOBase passes any buffer
        data = self._source.read(len(view))
        view[: len(data)] = data
        if self._expected is not None:
            self._hash.update(data)
        return len(data)

    def check(self) -> None:
        """Read what is left; raise ImageError when the whole is not what was expected."""
        while self.read(1 << 20):
            pass
        if self._expected is not None and self._hash.hexdigest() != self._expected:
            raise ImageError(f"it is damaged: its digest is not sha256:{self._expected}")


def _decompressed(stream: io.BufferedReader[_Hashing]) -> IO[bytes]:
    start = stream.peek(8)
    if start.startswith(_ZSTD):
        raise ImageError(
            "it is compressed with zstd, which cannot be read here; convert the image with "
            "skopeo copy --dest-compress-format gzip"
        )
    if start.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    if start.startswith(b"BZh"):
        return bz2.open(stream)
    if start.startswith(b"\xfd7zXZ\0"):
        return lzma.open(stream)
    return stream


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
