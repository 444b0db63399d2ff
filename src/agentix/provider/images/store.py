"""Task images: what ``SandboxConfig.image`` may be here, each unpacked once.

In the cache::

    <cache>/images/sha256-<hex>/    rootfs/, and image.json, the image's configuration
    <cache>/images/known/           which archive holds which image
    <cache>/images/names/           which image a registry had under a name, and when
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agentix import platforms
from agentix.bundle.memory import Memory
from agentix.errors import ImageError
from agentix.folders import cache_root, what_to_do
from agentix.progress import SILENT
from agentix.provider.images import layers
from agentix.provider.images.archive import describe
from agentix.provider.images.entries import Entries
from agentix.provider.images.formats import RunConfig
from agentix.provider.images.registry import Registries
from agentix.provider.images.tars import Tar
from agentix.provider.stopping import NEVER
from agentix.reference import SCHEME, Reference
from agentix.text import plain, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentix.progress import Progress
    from agentix.provider.images.formats import ImageDescription
    from agentix.provider.images.registry import Pull
    from agentix.provider.images.unpack import Unpacker
    from agentix.provider.stopping import Stop

HOST = "host"


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

    *pull* says when a registry is asked for an image: ``missing`` if it is not here, ``changed``
    also whether it still has that image under that name, ``never``. *insecure* are registries
    (``host:port``) that may be asked without a certificate that can be verified, or without TLS.
    Methods block, for as long as fetching and unpacking takes; *stop* ends that sooner.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        pull: Pull = "changed",
        insecure: Sequence[str] = (),
        progress: Progress = SILENT,
        stop: Stop = NEVER,
    ) -> None:
        root = (root or cache_root()).absolute()
        self._entries = Entries(root, stop)
        self._known = Memory(self._entries.folder / "known")
        self._registries = Registries(self._entries, pull, insecure, progress, stop)
        self._stop = stop

    def open(self, ref: str) -> Image:
        """Return the image called *ref*.

        It is ``host``, the path of a root file system or an archive, or else a name at a registry;
        with ``docker://`` in front it is always that. Raises ImageError when there is none, or it
        cannot be used.
        """
        if ref == HOST:
            return Image(HOST, Path("/"), host=True)
        if not ref.startswith(SCHEME) and (found := self._open_path(ref)) is not None:
            return found
        reference = None if _is_path(ref) else Reference.parse(ref)
        if reference is None:
            raise ImageError(
                f"image {quoted(ref)} is neither 'host', nor a root file system's folder, nor an "
                "archive, nor a name that a registry could know"
            )
        try:
            digest = self._registries.digest(reference)
        except OSError as error:
            raise self._cannot_unpack(str(reference), error) from error
        return self._unpacked(ref, digest)

    def _open_path(self, ref: str) -> Image | None:
        path = Path(os.path.realpath(ref))
        if path == Path("/"):
            return Image(HOST, path, host=True)
        try:
            if path.is_dir():
                os.scandir(path).close()
                return Image(ref, path)
            if not path.is_file():
                return None
        except OSError as error:
            reason = error.strerror or error
            raise ImageError(f"cannot read image {plain(ref)}: {reason}") from error
        try:
            status = path.stat()
            digest = self._known.recall(status)
            if digest is None or self._entries.find(digest) is None:
                digest = self._unpack(path)
                self._known.remember(status, path.stat(), digest)
        except OSError as error:
            raise self._cannot_unpack(str(path), error) from error
        return self._unpacked(ref, digest)

    def _cannot_unpack(self, what: str, error: OSError) -> ImageError:
        reason = error.strerror or error
        where = self._entries.folder
        return ImageError(f"cannot unpack image {what} into {where}: {reason}; {what_to_do(error)}")

    def _unpacked(self, ref: str, digest: str) -> Image:
        found = self._entries.find(digest)
        if found is None:
            where = self._entries.folder
            raise ImageError(f"image {ref} was removed from {where} while it was used")
        root, description = found
        named = bool(description.architecture)
        platform = f"{description.os}/{description.architecture}" if named else None
        return Image(ref, root, description.config or RunConfig(), platform)

    def _unpack(self, path: Path) -> str:
        """Unpack the archive at *path*, unless the image in it is here; return its digest."""
        image = describe(path, platforms.current().debian)

        def fill(unpacker: Unpacker, _scratch: Path) -> ImageDescription:
            with Tar.open(path) as archive:
                for layer in image.layers:
                    name = plain(layer.member or path.name)
                    member = layer.member
                    source = path.open("rb") if member is None else archive.content(member)
                    if source is None:
                        raise ImageError(f"image {path} lacks the layer {name!r}; save it again")
                    layers.apply(
                        source,
                        unpacker,
                        packed=layer.packed,
                        unpacked=layer.unpacked,
                        what=(str(path), name),
                        stop=self._stop,
                    )
            return image.description

        digest = image.digest or _sha256(path)
        self._entries.make(digest, fill)
        return digest


def _is_path(ref: str) -> bool:
    return ref.startswith(("/", ".", "~"))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
