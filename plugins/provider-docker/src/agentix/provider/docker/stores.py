"""Where the bundle is mounted: at /nix, or path by path into the Nix store that an image has.

An image built by Nix has its own programs in /nix/store, so that nothing may cover that folder.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from docker.types import Mount

from agentix.errors import ImageError
from agentix.provider.kit import cache_root, quoted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentix.provider.docker.facts import Image
    from agentix.provider.kit import CachedBundle

NIX = "/nix"
_ANSWERS = {b"folder": True, b"none": False}


def known(image: Image) -> bool | None:
    """Return whether *image* has a /nix, if that was found out before: it cannot change."""
    with suppress(OSError):
        return _ANSWERS.get(_note(image).read_bytes())
    return None


def learn(image: Image, label: str, kind: str | None) -> bool:
    """Return whether *image* has a /nix, from the *kind* of file that is there, and note it.

    Raises ImageError for one that is no folder.
    """
    if kind == "file":
        raise ImageError(
            f"image {quoted(label)} has a /nix that is no folder, which a sandbox needs"
        )
    with suppress(OSError):  # then it is found out again
        _note(image).parent.mkdir(parents=True, exist_ok=True)
        _note(image).write_bytes(b"folder" if kind else b"none")
    return kind is not None


def mounts(
    bundle: CachedBundle, label: str, source: Callable[[Path], str], *, merged: bool
) -> list[Mount]:
    """Return the mounts that show *bundle*, *merged* with the /nix of the image *label* or not.

    *source* gives a folder's name as the engine takes it. Raises ImageError when they cannot be
    merged.
    """
    if not merged:
        return [Mount(NIX, source(bundle.nix), type="bind", read_only=True)]
    store = bundle.nix / "store"
    places = {f"{NIX}/store/{name}": store / name for name in bundle.manifest.closure}
    for place, path in places.items():
        if path.is_symlink():
            raise ImageError(
                f"image {quoted(label)} has a Nix store of its own, which cannot be merged with the"
                f" bundle's: {place} is a link, which no engine mounts; use bubblewrap"
            )
    places[f"{NIX}/runtime"] = store / bundle.manifest.root / "runtime"
    return [
        Mount(place, source(path), type="bind", read_only=True) for place, path in places.items()
    ]


def _note(image: Image) -> Path:
    return cache_root() / "images/nix" / image.id.removeprefix("sha256:")
