"""A bundle's tar read by the reader that unpacks one, without being unpacked anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.bundle.reader import read_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentix.bundle.reader import ReadBundle


def check_bundle(chunks: Iterator[bytes], passed: Callable[[bytes], object]) -> ReadBundle:
    """Read the tar that *chunks* yields; each chunk is given to *passed*, before it is looked at.

    Not many come after one that no bundle could have. Memory is bounded whatever the tar says.
    Raises BundleError for anything but an intact bundle.
    """

    def passing() -> Iterator[bytes]:
        for chunk in chunks:
            passed(chunk)
            yield chunk

    return read_bundle(passing(), None)
