"""A store path as the layer that registries keep of it: its part of the bundle's tar, and an end.

So the layers of a bundle, one after the other, are its tar, and nothing has to be kept of that.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentix.bundle import archive, writer
from agentix.bundle.compression import Compressor, decompressed
from agentix.bundle.lane import Lane
from agentix.bundle.pipe import pumped
from agentix.bundle.tree import CHUNK
from agentix.distribution.artifact import COMPRESSED_LAYER, LAYER, TITLE, Descriptor
from agentix.errors import BundleError, DistributionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentix.nix import StorePath


def describe(path: StorePath, *, compress: bool) -> Descriptor:
    """Return what a registry would call the layer of *path*.

    Raises BundleError when the store path is not what it should be, OSError when it is not there.
    """
    digest, size = hashlib.sha256(), 0

    def write(data: bytes) -> None:
        nonlocal size
        digest.update(data)
        size += len(data)

    _produce(path, write, compress=compress)
    return Descriptor(
        media_type=COMPRESSED_LAYER if compress else LAYER,
        digest=f"sha256:{digest.hexdigest()}",
        size=size,
        annotations={TITLE: f"{path.path.name}.tar{'.zst' if compress else ''}"},
    )


@contextmanager
def contents(path: StorePath, *, compress: bool) -> Iterator[Iterator[bytes]]:
    """Give the bytes of the layer of *path*, in chunks; they raise what :func:`describe` does."""
    with pumped(lambda write: _produce(path, write, compress=compress)) as chunks:
        yield chunks


def tar_of(chunks: Iterator[bytes], *, compressed: bool) -> Iterator[bytes]:
    """Yield what the layer in *chunks* brings to the bundle's tar.

    Raises DistributionError when it has no proper end, or cannot be decompressed.
    """
    kept = b""
    try:
        for chunk in decompressed(chunks) if compressed else chunks:
            data = kept + chunk
            if len(data) > len(archive.END):
                yield data[: -len(archive.END)]
            kept = data[-len(archive.END) :]
    except BundleError as error:
        raise DistributionError(f"a layer is no tar of a store path: {error}") from error
    if kept != archive.END:
        raise DistributionError("a layer is no tar of a store path: it has no proper end")


def joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield *pieces*, of which many are small, as chunks that are worth handing on."""
    waiting, size = [], 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _compare(path: StorePath, digest: hashlib._Hash, size: int) -> None:
    if size != path.size or digest.hexdigest() != path.sha256:
        raise BundleError(f"{path.path} is not what was deployed")


def _produce(path: StorePath, write: Callable[[bytes], object], *, compress: bool) -> None:
    compressor = Compressor() if compress else None

    def packed(data: bytes) -> None:
        if ready := compressor.compress(data) if compressor else data:
            write(ready)

    out = writer.Chunks(packed)
    with Lane("bundle-nar") as lane:
        writer.add_store_path(path, out, lane, _compare)
    out.add(archive.END)
    out.flush()
    if compressor:
        write(compressor.finish())
