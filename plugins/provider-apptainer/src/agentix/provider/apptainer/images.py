"""Task images: what ``SandboxConfig.image`` may be here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import ImageError
from agentix.provider.apptainer.sif import is_sif, read_sif
from agentix.provider.kit import RunConfig, plain, platform_of

if TYPE_CHECKING:
    from agentix.provider.kit import ImageStore

# What every sandbox has of its own, and Apptainer mounts only where the image has a place for it.
OWN = ("dev", "proc", "sys")


@dataclass(frozen=True, slots=True)
class Opened:
    """An image that Apptainer can run: a folder or a SIF file.

    ``run`` is how its programs are meant to run. ``scripted`` says that the image's own scripts
    set up their environment, as a definition file made them, and ``stored`` that it has a Nix store
    of its own.
    """

    label: str
    path: Path
    run: RunConfig
    platform: str | None
    scripted: bool = False
    stored: bool = False

    @property
    def folder(self) -> Path | None:
        """The root file system, if it is one that can be looked into."""
        return self.path if self.path.is_dir() else None


def open_image(ref: str, store: ImageStore) -> Opened:
    """Return the image called *ref*. Blocks, for as long as fetching and unpacking takes.

    Raises ImageError when there is none, or it cannot be used.
    """
    try:
        path = Path(os.path.realpath(ref))
        sif = path.is_file() and is_sif(path)
    except OSError as error:
        reason = error.strerror or error
        raise ImageError(f"cannot read image {plain(ref)}: {reason}") from error
    if sif:
        return _checked(_of_sif(ref, path))
    image = store.open(ref)
    if image.host:
        raise ImageError(
            "apptainer does not run on this machine's own root; give an image, or use bubblewrap"
        )
    scripted = (image.root / ".singularity.d").is_dir()
    platform = image.platform or platform_of(image.root)
    stored = (image.root / "nix/store").is_dir()
    return _checked(Opened(ref, image.root, image.run, platform, scripted, stored))


def _of_sif(ref: str, path: Path) -> Opened:
    info = read_sif(path)
    scripted = info.run is None or info.customised
    return Opened(ref, path, info.run or RunConfig(), info.platform, scripted, info.stored)


def _checked(image: Opened) -> Opened:
    """Refuse an image that has something of its own where a sandbox gets something else."""
    if image.folder is not None:
        for name in (*OWN, "etc", "nix", "nix/store"):
            place = image.folder / name
            if place.is_symlink() or (place.exists() and not place.is_dir()):
                raise ImageError(f"image {image.label} has a /{name} that is no folder")
    return image
