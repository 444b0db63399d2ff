"""One layer on its way from a file into a root file system, checked while it is read."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
from typing import IO, TYPE_CHECKING, Any, cast

from agentix.errors import ImageError
from agentix.provider.images.tars import DAMAGED

if TYPE_CHECKING:
    from agentix.provider.images.unpack import Unpacker
    from agentix.provider.stopping import Stop

_ZSTD = b"\x28\xb5\x2f\xfd"


def apply(
    source: IO[bytes],
    unpacker: Unpacker,
    *,
    packed: str | None,
    unpacked: str | None,
    what: tuple[str, str],
    stop: Stop,
) -> None:
    """Unpack the layer that *source* gives, whose SHA-256 (hex) is *packed* as it is.

    *unpacked* is that of the tar in it; None is unknown. *what* says of which image it is which
    layer. Raises ImageError when it is something else.
    """
    image, name = what
    try:
        with source:
            outer = _Hashing(source, packed, stop)
            with io.BufferedReader(outer) as buffered, decompressed(buffered) as tar:
                inner = _Hashing(tar, unpacked, stop)
                unpacker.apply(cast("IO[bytes]", inner))
                inner.check()
                outer.check()
    except ImageError as error:
        raise ImageError(f"image {image} cannot be used: layer {name}: {error}") from error
    except DAMAGED as error:
        raise ImageError(f"image {image} is damaged: layer {name}: {error}") from error


class _Hashing(io.RawIOBase):
    """A stream that is hashed while it is read, to be checked once it has been read to its end."""

    def __init__(self, source: IO[bytes], expected: str | None, stop: Stop) -> None:
        self._source = source
        self._expected = expected
        self._stop = stop
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        self._stop.check()
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


def decompressed(stream: io.BufferedReader[Any]) -> IO[bytes]:
    """Return the tar in *stream*, by how it begins."""
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
