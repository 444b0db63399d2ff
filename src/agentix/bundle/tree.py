"""A store path on disk, read in the one order that archives have."""

from __future__ import annotations

import enum
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix.errors import BundleError
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK = 1024 * 1024


class Kind(enum.Enum):
    """What a store path can hold; there is nothing else in a Nix store."""

    FILE = "file"
    DIRECTORY = "folder"
    SYMLINK = "symbolic link"


@dataclass(frozen=True, slots=True)
class Node:
    """One file, folder or link of a tree; ``parts`` is its path below the tree's root."""

    path: bytes
    parts: tuple[bytes, ...]
    kind: Kind
    size: int = 0
    executable: bool = False
    target: bytes = b""


def walk(root: Path) -> Iterator[Node]:
    """Yield everything below and including *root*: depth first, names sorted as bytes.

    Links are not followed. Raises BundleError for what no store path can hold.
    """
    waiting: list[tuple[bytes, tuple[bytes, ...]]] = [(os.fsencode(root), ())]
    while waiting:
        path, parts = waiting.pop()
        node = _node(path, parts)
        yield node
        if node.kind is Kind.DIRECTORY:
            names = sorted(os.listdir(path), reverse=True)  # noqa: PTH208 - bytes
            waiting += [(path + b"/" + name, (*parts, name)) for name in names]


def _node(path: bytes, parts: tuple[bytes, ...]) -> Node:
    status = os.lstat(path)
    mode = status.st_mode
    if stat.S_ISREG(mode):
        executable = bool(mode & stat.S_IXUSR)
        return Node(path, parts, Kind.FILE, size=status.st_size, executable=executable)
    if stat.S_ISLNK(mode):
        target = os.readlink(path)  # noqa: PTH115 - bytes
        return Node(path, parts, Kind.SYMLINK, target=target)
    if stat.S_ISDIR(mode):
        return Node(path, parts, Kind.DIRECTORY)
    raise BundleError(
        f"{plain(path)} is neither a file, a folder nor a symbolic link,"
        " so it cannot be part of a bundle"
    )


def contents(node: Node) -> Iterator[bytes]:
    """Yield exactly the ``size`` bytes of a file.

    Raises BundleError when the file has changed since it was listed.
    """
    left = node.size
    file = os.open(node.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while left:
            piece = os.read(file, min(left, CHUNK))
            if not piece:
                raise BundleError(f"{plain(node.path)} shrank while it was being read; try again")
            left -= len(piece)
            yield piece
    finally:
        os.close(file)
