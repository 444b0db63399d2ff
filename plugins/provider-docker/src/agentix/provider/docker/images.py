"""Which image a sandbox gets, and whether the bundle and the engine can live with it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import ImageError, ProviderError

if TYPE_CHECKING:
    from agentix.provider.docker.address import Kind
    from agentix.provider.docker.facts import Image


def require_platforms(
    bundle: str, built_for: str, *, image: str, found: Image, engine: str
) -> None:
    """Check that the *bundle*, the *image* and the *engine* are for one platform.

    Raises ProviderError or ImageError that names the two that differ.
    """
    if engine != built_for:
        raise ProviderError(
            f"bundle {bundle} is for {built_for}, but the Docker engine runs {engine};"
            f" build it with --platform {engine}"
        )
    if found.platform and found.platform != built_for:
        raise ImageError(
            f"image {image!r} is made for {found.platform}, but bundle {bundle} is for {built_for};"
            f" pull the image for {built_for}"
        )


def cannot_be_pulled(kind: Kind, reference: str) -> ImageError | None:
    """Return the error for a *reference* that no registry could know; None when one could."""
    why = None
    if reference.startswith(("/", ".", "~")):
        why = f"{kind} takes images by name; {_how_to_name(kind, reference)}, and use that name"
    elif reference.startswith("sha256:"):
        why = "an id cannot be pulled; use a name"
    return ImageError(f"image {reference!r} is not on this machine: {why}") if why else None


def _how_to_name(kind: Kind, reference: str) -> str:
    """Return how the engine is given a file or folder that other providers take as an image."""
    path = Path(reference).expanduser()
    name = shlex.quote(str(path))
    if path.is_dir():
        return f"tar -C {name} -c . | {kind} import - NAME"
    return (
        f"{kind} load --input {name} (of an archive by {kind} save)"
        f" or {kind} import {name} NAME (of a root file system)"
    )
