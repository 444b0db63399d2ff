"""Pieces of a bundle as a tar, for backends that cannot mount the cache and unpack it elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.bundle import archive
from agentix.bundle.archive import Member
from agentix.bundle.tree import Kind, contents, walk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def store_tar(root: Path, name: str) -> Iterator[bytes]:
    """Yield the members of a tar for everything at *root*, as if it were at *name*."""
    for node in walk(root):
        path = b"/".join((name.encode(), *node.parts))
        yield Member(path, node.kind, node.size, node.executable, node.target).header()
        if node.kind is Kind.FILE:
            yield from contents(node)
            yield bytes(archive.padding(node.size))
