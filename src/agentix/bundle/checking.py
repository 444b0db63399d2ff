"""A bundle's tar read by the reader that unpacks one, without being unpacked anywhere."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from agentix.bundle import reader
from agentix.bundle.blocks import Blocks
from agentix.bundle.lane import Lane
from agentix.bundle.reader import ReadBundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentix.bundle.folder import Folder


def check_bundle(chunks: Iterator[bytes], passed: Callable[[bytes], object]) -> ReadBundle:
    """Read the tar that *chunks* yields; each chunk is given to *passed*, before it is looked at.

    Not many come after one that no bundle could have. Memory is bounded whatever the tar says.
    Raises BundleError for anything but an intact bundle.
    """
    sha256 = hashlib.sha256()
    with Lane("bundle-digest") as digests, Lane("bundle-nar") as nars:

        def arrived(data: bytes) -> None:
            digests.do(partial(sha256.update, data))
            passed(data)

        blocks = Blocks(chunks, arrived)
        manifest = reader._manifest(blocks)
        nowhere = cast("Folder", _Nowhere())
        reader._Unpacking(manifest, blocks, nowhere, nars, Path(), None).run()
    return ReadBundle(manifest, sha256.hexdigest(), blocks.size)


class _Nowhere:
    """Takes what a folder takes, and keeps nothing."""

    def directory(self, parts: list[bytes]) -> None:
        pass

    def symlink(self, parts: list[bytes], target: bytes) -> None:
        pass

    def file(
        self,
        parts: list[bytes],
        pieces: Iterable[memoryview],
        seen: Callable[[memoryview], object],
        *,
        executable: bool,
    ) -> None:
        for piece in pieces:
            seen(piece)
