"""What a path to a bundle leads to: a tar, a deployed bundle, or a result of ``nix build``."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agentix.bundle.entry import MANIFEST
from agentix.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Iterator

What = Literal["tar", "deployed", "built"]


def locate(ref: str | Path) -> tuple[Path, What]:
    """Return what the path *ref* leads to, after every link, and which of the three it looks like.

    Raises BundleError when it is a folder of another kind, or cannot be looked at.
    """
    if not str(ref).strip():  # which a path would take for the folder that this runs in
        raise BundleError("no bundle was given; give what agentix build printed")
    path = Path(ref)
    try:
        real = _real(path)
        is_folder = real.is_dir()
        built = is_folder and (real / "info.json").is_file() and (real / "runtime").is_dir()
        deployed = is_folder and (real / MANIFEST).is_file() and (real / "nix").is_dir()
    except OSError as error:
        raise _unreadable(path, error) from error
    if is_folder and not built and not deployed:
        raise BundleError(
            f"{path} is not a bundle: neither a .bundle.tar, nor a deployed bundle (sha256-…),"
            " nor a result of nix build"
        )
    return (real, "built") if built else (real, "deployed") if deployed else (path, "tar")


@contextmanager
def opened(tar: Path) -> Iterator[int]:
    """Open the file *tar* for reading; BundleError when it is no file, or cannot be."""
    try:
        # Without waiting, should it be a fifo.
        file = os.open(tar, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(tar, error) from error
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise BundleError(f"{tar} is not a file, so it is not a bundle's tar")
        yield file
    finally:
        os.close(file)


def _unreadable(path: Path, error: OSError) -> BundleError:
    return BundleError(f"cannot read the bundle {path}: {error.strerror or error}")


def _real(path: Path) -> Path:
    real = Path(os.path.realpath(path))
    if real.parts[:3] == ("/", "nix", "store") and not real.exists():
        # The store may be a user's own, elsewhere than the links into it say.
        from agentix.nix import find

        return find().real(real)
    return real
