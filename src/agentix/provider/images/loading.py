"""An archive in the form in which engines load images: that of ``docker save``, under one name.

What an archive calls itself does not matter: it must not take the name of another image.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import IO, TYPE_CHECKING

from agentix.bundle.memory import Memory
from agentix.errors import ImageError
from agentix.folders import cache_root, what_to_do
from agentix.provider.images.archive import describe
from agentix.provider.images.entries import Entries
from agentix.provider.images.layers import decompressed
from agentix.provider.images.tars import DAMAGED, Tar
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentix.provider.images.archive import ArchivedImage, Layer
    from agentix.provider.stopping import Stop

_BLOCK = 512
_CHUNK = 1 << 20


class ImageArchive:
    """The archive at *path*, read for *architecture* where it holds images for several.

    Methods block, and raise ImageError for what is no archive of one image.
    """

    def __init__(self, path: Path, architecture: str, stop: Stop) -> None:
        self._path = path.resolve()
        self._architecture = architecture
        self._stop = stop
        self._entries = Entries(cache_root().absolute(), stop)
        self._known = Memory(self._entries.folder / f"known-{architecture}")

    def digest(self) -> str:
        """Return the hex by which the image in it is known; it is read once."""
        try:
            status = self._path.stat()
            digest = self._known.recall(status)
            if digest is None:
                digest = self._describe().digest or _sha256(self._path)
                self._known.remember(status, self._path.stat(), digest)
        except OSError as error:
            reason = error.strerror or error
            raise ImageError(f"cannot read image {self._path}: {reason}") from error
        return digest

    def load(
        self, name: str, here: Callable[[], bool], into: Callable[[Iterator[bytes]], None]
    ) -> None:
        """Send the image to an engine as *name*, unless it is *here*: once, whoever else asks.

        *into* takes what ``docker save`` would have written.
        """
        key = hashlib.sha256(name.encode()).hexdigest()
        try:
            with self._entries.hold(f"load-{key[:32]}") as scratch:
                if not here():
                    into(self._saved(name, scratch))
        except OSError as error:
            reason = error.strerror or error
            raise ImageError(
                f"cannot load image {self._path}: {reason}; {what_to_do(error)}"
            ) from error

    def _describe(self) -> ArchivedImage:
        return describe(self._path, self._architecture)

    def _saved(self, name: str, scratch: Path) -> Iterator[bytes]:
        image = self._describe()
        try:
            path = self._plain(scratch)
            configuration = image.configuration or self._configuration(path)
            config = f"{hashlib.sha256(configuration).hexdigest()}.json"
            layers = [f"{number}/layer.tar" for number in range(len(image.layers))]
            manifest = [{"Config": config, "RepoTags": [name], "Layers": layers}]
            yield from _member(config, io.BytesIO(configuration))
            with Tar.open(path) as archive:
                for target, layer in zip(layers, image.layers, strict=True):
                    with self._open(path, archive, layer) as content:
                        yield from self._checked(layer, target, content)
            yield from _member("manifest.json", io.BytesIO(json.dumps(manifest).encode()))
        except DAMAGED as error:
            raise ImageError(f"image {self._path} is damaged: {error}") from error
        yield bytes(2 * _BLOCK)

    def _plain(self, scratch: Path) -> Path:
        """Return the archive without compression, in which one can go back and forth."""
        with self._path.open("rb") as file, decompressed(file) as content:
            if content is file:
                return self._path
            target = scratch / "archive.tar"
            with target.open("wb") as copy:
                while piece := content.read(_CHUNK):
                    self._stop.check()
                    copy.write(piece)
        return target

    def _configuration(self, path: Path) -> bytes:
        """Make the configuration of an image that is a root file system and nothing else."""
        rootfs = {"type": "layers", "diff_ids": [f"sha256:{_sha256(path)}"]}
        content = {"architecture": self._architecture, "os": "linux", "config": {}}
        return json.dumps(content | {"rootfs": rootfs}).encode()

    def _open(self, path: Path, archive: Tar, layer: Layer) -> IO[bytes]:
        if layer.member is None:
            return path.open("rb")
        content = archive.content(layer.member)
        if content is None:
            name = plain(layer.member)
            raise ImageError(f"image {self._path} lacks the layer {name!r}; save it again")
        return content

    def _checked(self, layer: Layer, target: str, content: IO[bytes]) -> Iterator[bytes]:
        """Yield the layer as a member, and raise ImageError when it is not what was described."""
        found = hashlib.sha256()
        for piece in _member(target, content, found.update):
            self._stop.check()
            yield piece
        # What is compressed, and known by what is in it, the engine checks.
        if layer.packed not in (None, found.hexdigest()):
            name = plain(layer.member or "")
            raise ImageError(f"image {self._path} is damaged: layer {name} was altered")


def _member(
    name: str, content: IO[bytes], hear: Callable[[bytes], object] = len
) -> Iterator[bytes]:
    """Yield a member of a tar; *hear* is told its content, piece by piece."""
    size = content.seek(0, io.SEEK_END)
    content.seek(0)
    header = tarfile.TarInfo(name)
    header.size = size
    yield header.tobuf(tarfile.PAX_FORMAT)
    sent = 0
    while piece := content.read(_CHUNK):
        hear(piece)
        sent += len(piece)
        yield piece
    if sent != size:
        raise tarfile.ReadError("unexpected end of data")
    yield bytes(-size % _BLOCK)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
