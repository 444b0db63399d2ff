"""Shared memory in which a large payload passes between server and worker without being copied.

The receiver checks what it was given before it touches it: a sealed memory file cannot shrink or
change under its reader, and reading it never waits.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from typing import TYPE_CHECKING, Final, TypeAlias

from agentix.wire.errors import MalformedError
from agentix.wire.frames import Buffer

if TYPE_CHECKING:
    from collections.abc import Iterable

_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

_MAPPED: Final = 8 << 20

_ATTEMPTS: Final = 20


class Parcel:
    """A memory file: written piece by piece, sealed, passed on as a descriptor, closed."""

    __slots__ = ("fd", "size")

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size

    @classmethod
    def empty(cls) -> Parcel:
        """Create a parcel to write to."""
        return cls(os.memfd_create("agentix", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), 0)

    @classmethod
    def of(cls, pieces: Iterable[Buffer]) -> Parcel:
        """Create a sealed parcel that holds these pieces."""
        parcel = cls.empty()
        try:
            for piece in pieces:
                parcel.write(piece)
            parcel.seal()
        except BaseException:
            parcel.close()
            raise
        return parcel

    @classmethod
    def received(cls, fd: int) -> Parcel:
        """Take over a descriptor that came from another process, if it is a sealed memory file."""
        try:
            if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
                raise MalformedError("a payload came in memory that can still change")
            return cls(fd, os.fstat(fd).st_size)
        except OSError as exc:
            os.close(fd)
            raise MalformedError("a payload came in something else than shared memory") from exc
        except MalformedError:
            os.close(fd)
            raise

    def twin(self) -> Parcel:
        """Give another descriptor of the same memory, to be closed by whoever asked for it."""
        return Parcel(os.dup(self.fd), self.size)

    def write(self, piece: Buffer) -> None:
        """Append to the memory."""
        view = memoryview(piece)
        while view:
            written = os.write(self.fd, view)
            self.size += written
            view = view[written:]

    def seal(self) -> None:
        """Make the memory immutable, which every receiver insists on.

        The kernel refuses that (EBUSY) for as long as anything else holds one of its pages, as what
        moves memory about does for moments: fcntl(2), F_SEAL_WRITE. It waits for 0.15 s itself.
        """
        for _ in range(_ATTEMPTS):
            try:
                fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
            except OSError as exc:
                if exc.errno != errno.EBUSY:
                    raise
            else:
                return
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)

    def opened(self) -> memoryview:
        """Have the contents in this process's own memory, writable.

        A large parcel is mapped, and each page copied only when it is written to. A mapping lives
        as long as anything looks at it and holds a descriptor as long, so a small one is copied.
        """
        if self.size < _MAPPED:
            memory = bytearray(self.size)
            at = 0
            while at < self.size:
                at += os.preadv(self.fd, [memoryview(memory)[at:]], at)
            return memoryview(memory)
        return memoryview(
            mmap.mmap(self.fd, self.size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        )

    def close(self) -> None:
        """Let go of the descriptor; twice does no harm."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


Payload: TypeAlias = Buffer | Parcel


def drop(payload: object) -> None:
    """Let go of a payload that goes nowhere; only a parcel holds anything."""
    if isinstance(payload, Parcel):
        payload.close()


def contents(payload: Payload | None) -> bytes | None:
    """Take a payload that is short enough to be copied; ``None`` if there was no room for it."""
    if not isinstance(payload, Parcel):
        return None if payload is None else bytes(payload)
    try:
        return bytes(payload.opened())
    finally:
        payload.close()
