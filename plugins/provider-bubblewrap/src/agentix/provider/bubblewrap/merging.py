"""The store that a sandbox has: the bundle's alone, or merged with that of a Nix-built image.

Merged, each path of the bundle's closure gets a mount of its own beside the image's paths, and the
image's store stays as writable as it was. Where bubblewrap may make no mount points in the image's
store, one read-only overlay joins the two.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix.errors import ImageError
from agentix.provider.bubblewrap.layout import (
    Bind,
    Overlay,
    lay_out,
    lay_out_folder,
    why_no_overlay,
)
from agentix.provider.kit import MOUNT, resolve

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.provider.bubblewrap.layout import Mounts, Piece
    from agentix.provider.kit import CachedBundle, Image

_NIX = "/nix"
_STORE = "/nix/store"
_RUNTIME = "/nix/runtime"
_OURS = frozenset(("store", "runtime", "run"))


@dataclass(frozen=True, slots=True)
class Root:
    """A whole root: the *pieces* of the image, and *nix*, options for what goes on top of them.

    ``fresh`` says that /nix is a file system of its own.
    """

    pieces: list[Piece]
    nix: list[str | Piece]
    fresh: bool = False


def compose(image: Image, bundle: CachedBundle, mounted: Mounts) -> Root:
    """Decide how *image* and *bundle* become one root.

    Raises ImageError when that cannot be, OSError when the image cannot be read.
    """
    alone = Root(
        lay_out(image.root, mounted, host=image.host), ["--ro-bind", str(bundle.nix), _NIX]
    )
    if not (image.root / "nix").is_dir() or (image.root / "nix").is_symlink():
        return alone
    pieces = lay_out(image.root, mounted, host=image.host, with_nix=True)
    if _takes_mount_points(image, bundle, pieces):
        return Root(pieces, _beside(bundle))
    store = resolve(image.root, _STORE)
    problem = _cannot_be_joined(store, bundle, mounted)
    if problem is None:
        return Root(alone.pieces, _joined(image, store, bundle, mounted), fresh=True)
    if image.host and not _lives_in_nix(image.root):
        return alone
    raise ImageError(
        f"image {image.label} has a Nix store of its own, which cannot be merged with the "
        f"bundle's: {problem}; copy the image to an ordinary file system, or use another "
        "provider, such as docker"
    )


def _beside(bundle: CachedBundle) -> list[str | Piece]:
    options: list[str | Piece] = []
    for name in bundle.manifest.closure:
        source = bundle.nix / "store" / name
        if source.is_symlink():
            options += ["--symlink", str(source.readlink()), f"{_STORE}/{name}"]
        else:
            options += ["--ro-bind", str(source), f"{_STORE}/{name}"]
    return [*options, *_runtime(bundle)]


def _joined(image: Image, store: Path, bundle: CachedBundle, mounted: Mounts) -> list[str | Piece]:
    options: list[str | Piece] = ["--perms", "0755", "--tmpfs", _NIX]
    options += lay_out_folder(image.root / "nix", _NIX, mounted, without=_OURS)
    for source in (store, bundle.nix / "store"):
        options += ["--overlay-src", str(source)]
    return [*options, "--ro-overlay", _STORE, *_runtime(bundle)]


def _runtime(bundle: CachedBundle) -> list[str | Piece]:
    # Mounted, since where there is a link or a folder already, no link can be made.
    return ["--ro-bind", f"{bundle.nix}/store/{bundle.manifest.root}/runtime", _RUNTIME]


def _takes_mount_points(image: Image, bundle: CachedBundle, pieces: list[Piece]) -> bool:
    """Tell whether bubblewrap can make its mount points in the image's own /nix."""
    places = (_STORE, _RUNTIME, MOUNT, *(f"{_STORE}/{name}" for name in bundle.manifest.closure))
    for place in (image.root / name[1:] for name in places):
        # bubblewrap would follow a link while it can still see the host.
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            return False
    return all(_may_add(image.root, name, pieces) for name in (_NIX, _STORE))


def _may_add(root: Path, folder: str, pieces: list[Piece]) -> bool:
    over = max(
        (piece for piece in pieces if folder == piece.place or _is_below(folder, piece.place)),
        key=lambda piece: len(piece.place),
    )
    if isinstance(over, Bind):
        return False
    if not isinstance(over, Overlay):
        return True  # in memory
    try:
        found = (root / folder[1:]).lstat()
    except FileNotFoundError:
        return True
    # In its namespace, bubblewrap is nobody to what belongs to others.
    mine = found.st_uid == os.geteuid() and found.st_mode & 0o300 == 0o300
    return mine or found.st_mode & 0o003 == 0o003


def _is_below(name: str, folder: str) -> bool:
    return name.startswith(f"{folder.rstrip('/')}/")


def _cannot_be_joined(store: Path, bundle: CachedBundle, mounted: Mounts) -> str | None:
    if not store.is_dir():
        return f"{_STORE} is no folder"
    return why_no_overlay(store, mounted) or why_no_overlay(bundle.nix / "store", mounted)


def _lives_in_nix(root: Path) -> bool:
    """Tell whether *root* is that of a system whose first programs are in its store."""
    for name in ("bin/sh", "usr/bin/env"):
        place = root / name
        if place.is_symlink() and _is_below(str(place.readlink()), _NIX):
            return True
    return False
