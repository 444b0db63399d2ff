"""How much a document may hold, beyond how many bytes it may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack

from agentix.wire.protocol import MAX_ELEMENTS

if TYPE_CHECKING:
    from agentix.wire.frames import Buffer


def check_elements(document: Buffer) -> None:
    """Raise ValueError for too many elements, without having more than one array at a time.

    An element takes a byte at least: most documents are too short to have too many.
    """
    if len(document) <= MAX_ELEMENTS:
        return
    left = MAX_ELEMENTS

    def count(array: list[Any]) -> None:
        nonlocal left
        left -= len(array)
        if left < 0:
            raise ValueError(f"more than {MAX_ELEMENTS:,} values")

    msgpack.unpackb(
        document,
        list_hook=count,
        max_map_len=0,
        max_array_len=MAX_ELEMENTS,
        unicode_errors="surrogatepass",
    )
