"""Tars that anybody may have made, read so that none takes more memory or time than it is worth."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXTENSIONS = frozenset(
    {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE}
    | {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
)
_LARGEST_HEADER = 1024 * 1024  # bytes of what precedes a member; tarfile reads it whole
_LARGEST = 32 * 1024**3  # bytes of all members; gzip makes a thousandth of zeros
_MOST = 500_000  # members


class Header(tarfile.TarInfo):
    """A member's header, refused when it is longer than any name or attribute."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Return the header in *buf*; tarfile.ReadError when what belongs to it is too long."""
        header = super().frombuf(buf, encoding, errors)
        if header.type in _EXTENSIONS and header.size > _LARGEST_HEADER:
            raise tarfile.ReadError(f"a header in it has {header.size} bytes")
        return header


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of *archive*, which was opened with ``tarinfo=Header``, and keep none.

    Raises tarfile.ReadError when there are too many, or when they are too large together.
    """
    size = 0
    for number, member in enumerate(archive):
        archive.members = []  # type: ignore[attr-defined]  # else it keeps all of them
        size += member.size if member.isreg() else 0
        if number >= _MOST or size > _LARGEST:
            raise tarfile.ReadError(f"more than {_MOST} members or {_LARGEST} bytes are in it")
        yield member
