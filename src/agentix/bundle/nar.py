"""The hash that Nix gives a file tree: SHA-256 of its NAR serialisation.

A NAR holds what a store path is and nothing else: names, contents, executable bits, link targets.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix.bundle.tree import Kind, contents, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from agentix.bundle.tree import Node

_FLUSH = 256 * 1024


@dataclass(frozen=True, slots=True)
class NarHash:
    """The SHA-256 (hex) and the size of a tree's NAR serialisation."""

    sha256: str
    size: int


def nar_hash(path: Path) -> NarHash:
    """Hash the tree at *path* as ``nix-store --query --hash`` would."""
    digest = hashlib.sha256()
    nar = Nar(digest.update)
    for node in walk(path):
        nar.add(node)
    size = nar.finish()  # before the digest is read: it brings the last bytes
    return NarHash(digest.hexdigest(), size)


class OutOfOrder(ValueError):  # noqa: N818 - says what is wrong, and never leaves this package
    """A member came twice, out of order, or below something that is not an open directory."""


class Nar:
    """Serialise one tree whose members arrive as in an archive, handing the bytes to *update*.

    For every member call :meth:`enter`, then what it is. Members arrive depth first, the names of
    a directory sorted as bytes: the only order that a NAR can have, which makes :meth:`enter` the
    one check that no name comes twice and that every parent is a directory of this very tree.
    """

    def __init__(self, update: Callable[[bytes | memoryview], object]) -> None:
        self.size = 0
        self._update = update
        self._pending = bytearray(_string(b"nix-archive-1"))
        self._open: list[bytes] = []  # names of the open directories below the root
        self._last: list[bytes] = []  # the last name seen in the root and in each open directory
        self._started = False
        self._padding = 0

    def add(self, node: Node, seen: Callable[[bytes], object] = len) -> None:
        """Take *node*, read from disk; *seen* is given each piece of a file's contents too."""
        self.enter(node.parts)
        match node.kind:
            case Kind.DIRECTORY:
                self.directory()
            case Kind.SYMLINK:
                self.symlink(node.target)
            case Kind.FILE:
                self.file(node.size, executable=node.executable)
                for piece in contents(node):
                    seen(piece)
                    self.content(piece)
                self.end_file()

    def enter(self, parts: Sequence[bytes]) -> None:
        """Begin the member at *parts*, its path below the root (empty for the root itself).

        Raises OutOfOrder when it cannot come now.
        """
        if not parts:
            if self._started:
                raise OutOfOrder("comes twice")
            self._started = True
            return
        depth = len(parts) - 1
        if len(self._last) <= depth:
            raise OutOfOrder("has no folder to be in")
        opened = self._open
        for index in range(depth):
            if opened[index] != parts[index]:
                raise OutOfOrder("is not in an open folder")
        self._close(depth)
        name = parts[depth]
        if name <= self._last[depth]:
            raise OutOfOrder("comes twice" if name == self._last[depth] else "is out of order")
        self._last[depth] = name
        self._pending += _ENTRY
        self._pending += _string(name)
        self._pending += _NODE

    def directory(self) -> None:
        """Say that the member is a directory; what follows may be inside it."""
        self._pending += _DIRECTORY
        # Remember its name: directories below the root are the last name of their parents.
        if self._last:
            self._open.append(self._last[-1])
        self._last.append(b"")

    def symlink(self, target: bytes) -> None:
        """Say that the member is a symbolic link to *target*."""
        self._pending += _SYMLINK
        self._pending += _string(target)
        self._end_node()

    def file(self, size: int, *, executable: bool) -> None:
        """Say that the member is a file of *size* bytes, which :meth:`content` brings."""
        self._pending += _EXECUTABLE if executable else _REGULAR
        self._pending += size.to_bytes(8, "little")
        self._padding = -size % 8

    def content(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the file; they are not changed afterwards."""
        if len(data) < _FLUSH // 4:
            self._pending += data
            if len(self._pending) >= _FLUSH:
                self._flush()
        else:
            self._flush()
            self.size += len(data)
            self._update(data)

    def end_file(self) -> None:
        """Say that all bytes of the file have come."""
        self._pending += bytes(self._padding)
        self._end_node()

    def finish(self) -> int:
        """Say that all members have come; return the size of the serialisation."""
        if not self._started:
            raise OutOfOrder("has no content")
        if self._last:
            self._close(0)
            self._pending += _END
        self._flush()
        return self.size

    @property
    def size_so_far(self) -> int:
        """How large the serialisation is at least."""
        return self.size + len(self._pending)

    def _close(self, depth: int) -> None:
        """Close the open directories deeper than *depth* levels below the root."""
        for _ in range(len(self._open) - depth):
            self._open.pop()
            self._last.pop()
            self._pending += _END_ENTRY

    def _end_node(self) -> None:
        self._pending += _END_ENTRY if self._last else _END
        if len(self._pending) >= _FLUSH:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self.size += len(self._pending)
            self._update(bytes(self._pending))
            self._pending.clear()


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data + bytes(-len(data) % 8)


def _strings(*words: bytes) -> bytes:
    return b"".join(map(_string, words))


_ENTRY = _strings(b"entry", b"(", b"name")
_NODE = _strings(b"node")
_DIRECTORY = _strings(b"(", b"type", b"directory")
_SYMLINK = _strings(b"(", b"type", b"symlink", b"target")
_REGULAR = _strings(b"(", b"type", b"regular", b"contents")
_EXECUTABLE = _strings(b"(", b"type", b"regular", b"executable", b"", b"contents")
_END = _strings(b")")
_END_ENTRY = _strings(b")", b")")
