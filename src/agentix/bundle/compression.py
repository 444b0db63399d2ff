"""A bundle's tar as it is kept: as it is, or compressed with zstd. Its name is the tar's digest.

The same tar gives the same compressed bytes with one release of the zstd library; another release
may compress better. So nothing is ever known by a digest of these.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from agentix.bundle.tree import CHUNK
from agentix.errors import BundleError
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

SUFFIX = ".zst"
_MAGIC = b"\x28\xb5\x2f\xfd"
_LEVEL = 3  # beyond it, a bundle shrinks by a tenth and takes three times as long
_LARGEST_WINDOW = 27  # the logarithm of what a decompressor may have to remember: 128 MiB
_MOST_FRAMES = 4096  # each costs time, also one that holds nothing


class Compressor:
    """Compresses one tar, in one thread: how many cores there are changes no byte."""

    def __init__(self) -> None:
        parameter = zstd.CompressionParameter
        options = {int(parameter.compression_level): _LEVEL, int(parameter.checksum_flag): 1}
        self._frame = zstd.ZstdCompressor(options=options)

    def compress(self, data: bytes) -> bytes:
        """Return what is ready of the compressed bytes after *data*; it may be nothing yet."""
        return self._frame.compress(data)

    def finish(self) -> bytes:
        """Return the rest of the compressed bytes."""
        return self._frame.flush()


def tar_chunks(file: int) -> Iterator[bytes]:
    """Yield the tar in the open *file* from its beginning, decompressed if it is compressed.

    Where the file stands is neither asked nor changed. Raises what :func:`decompressed` does.
    """
    chunks = _chunks(file)
    return decompressed(chunks) if is_compressed(file) else chunks


def is_compressed(file: int) -> bool:
    """Tell by its first bytes whether the open *file* is compressed."""
    return os.pread(file, len(_MAGIC), 0) == _MAGIC


def decompressed(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield what the zstd data *chunks* holds, in pieces of bounded size, as they are asked for.

    Raises BundleError for data that is damaged or ends early.
    """
    frame, frames = _decompressor(), 1
    for data in chunks:
        while True:
            if frame.eof:
                frame, frames = _decompressor(), frames + 1
                if frames > _MOST_FRAMES:
                    raise BundleError(f"it is compressed in more than {_MOST_FRAMES} pieces")
            try:
                piece = frame.decompress(data, CHUNK)
            except zstd.ZstdError as error:
                raise BundleError(
                    f"its compressed data is damaged or needs too much memory: {plain(str(error))}"
                ) from error
            if piece:
                yield piece
            data = frame.unused_data if frame.eof else b""
            if not data and (frame.eof or frame.needs_input):
                break
    if not frame.eof:
        raise BundleError("it is truncated")


def _decompressor() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(
        options={int(zstd.DecompressionParameter.window_log_max): _LARGEST_WINDOW}
    )


def _chunks(file: int) -> Iterator[bytes]:
    offset = 0
    while data := os.pread(file, CHUNK, offset):
        offset += len(data)
        yield data
