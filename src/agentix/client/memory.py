"""Memory for large pieces of an answer: reserved as announced, taken as they arrive.

Its pages do not exist before something is written to them; and as the kernel may then make large
ones, receiving takes a third of the time.
"""

from __future__ import annotations

import io
import mmap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agentix.wire.frames import Buffer

_LAZY: Final = 1 << 20
"""Bytes from which writable memory comes in pages of its own."""

_HUGE: Final = 4 << 20
"""Bytes from which they had better be large."""

_PAGE: Final = 2 << 20
_MADV_HUGEPAGE: Final = 14


def writable(size: int) -> Buffer:
    """Make memory that may be written to later on."""
    if size < _LAZY:
        return bytearray(size)
    pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = memoryview(pages)
    _prefer_large_pages(view)
    return view


class Bytes:
    """Bytes to be filled. They are given away without a copy, once nobody holds a view of them."""

    def __init__(self, size: int) -> None:
        # A file takes over the bytes that it is made of.
        self._file = io.BytesIO(bytes(size))

    def view(self) -> memoryview:
        """Give the memory to write to, which is to be released."""
        view = self._file.getbuffer()
        _prefer_large_pages(view)
        return view

    def value(self) -> bytes:
        """Give the bytes."""
        return self._file.getvalue()


def _prefer_large_pages(view: memoryview) -> None:
    if len(view) < _HUGE:
        return
    import ctypes

    first = ctypes.c_char.from_buffer(view)
    address = ctypes.addressof(first)
    del first
    start = -(-address // _PAGE) * _PAGE
    size = (address + len(view) - start) // _PAGE * _PAGE
    if size > 0:
        ctypes.CDLL(None).madvise(
            ctypes.c_void_p(start), ctypes.c_size_t(size), ctypes.c_int(_MADV_HUGEPAGE)
        )
