"""Tars that may say anything: read by tarfile, within bounds, and with errors of few kinds."""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zlib
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Everything that reading a tar raises when the tar is to blame.
DAMAGED = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)

_EXTENSIONS = frozenset(
    (
        *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
        *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    )
)
_CHUNK = 1 << 20
_MAX_EXTENSION = 1 << 20  # names, links and attributes, which tarfile reads into memory


class _Member(tarfile.TarInfo):
    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _EXTENSIONS and self.size > _MAX_EXTENSION:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        return super()._proc_member(tar)  # type: ignore[misc,no-any-return]


class Tar(tarfile.TarFile):
    """A tar whose members and contents come with no other errors than DAMAGED and OSError."""

    tarinfo = _Member

    def next(self) -> tarfile.TarInfo | None:
        """Return the next member; None at the end."""
        try:
            return super().next()
        except (OSError, *DAMAGED):
            raise
        except Exception as error:  # a number, a text or a depth that tarfile did not expect
            raise tarfile.ReadError("a header that makes no sense") from error

    def pieces(self, member: tarfile.TarInfo) -> Iterator[tuple[int, bytes]]:
        """Yield where in the file *member* there is content, and which; the rest of it is holes.

        Holes cost nothing here: with them, a few bytes of a tar could fill a disk.
        """
        source = self.fileobj
        assert source is not None  # noqa: S101 - it is open
        source.seek(member.offset_data)
        parts = getattr(member, "sparse", None)
        for start, size in [(0, member.size)] if parts is None else parts:
            if start < 0 or size < 0 or start + size > member.size:
                raise tarfile.ReadError("a file with impossible holes")
            offset, end = start, start + size
            while offset < end:
                data = source.read(min(end - offset, _CHUNK))
                if not data:
                    raise tarfile.ReadError("unexpected end of data")
                yield offset, data
                offset += len(data)

    def content(self, name: str) -> IO[bytes] | None:
        """Return the content of the file *name*, also by a link; None when there is none."""
        try:
            return self.extractfile(name)
        except (KeyError, RecursionError):
            return None
