"""What surrounds the store paths in a bundle's tar: the manifest in front, a link and the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.bundle import archive
from agentix.bundle.archive import Member
from agentix.bundle.tree import Kind

if TYPE_CHECKING:
    from agentix.bundle.manifest import Manifest


def beginning(manifest: Manifest) -> bytes:
    """Return what comes before the store paths."""
    text = manifest.to_bytes()
    header = Member(b"manifest.json", Kind.FILE, len(text)).header()
    return header + text + bytes(archive.padding(len(text)))


def ending(manifest: Manifest) -> bytes:
    """Return what comes after the store paths."""
    link = Member(b"nix/runtime", Kind.SYMLINK, target=manifest.runtime.encode())
    return link.header() + archive.END
