"""One deployed bundle: a folder of the cache, complete or not to be used at all."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from agentix import platforms
from agentix.bundle.holding import Hold, hold
from agentix.bundle.manifest import MAX_MANIFEST_BYTES, Manifest
from agentix.errors import BundleError
from agentix.wire.protocol import PROTOCOL

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "manifest.json"
_WHAT_TO_DO = "remove it, and deploy the bundle again"
_REF = re.compile(r"sha256[-:]([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class CachedBundle:
    """A bundle unpacked in a cache; ``digest`` is the SHA-256 (hex) of its tar.

    As long as this object is referred to, ``agentix cache gc`` leaves the bundle alone: whoever
    makes a sandbox of it keeps it until that has ended.
    """

    path: Path
    digest: str
    manifest: Manifest
    held: Hold | None = field(default=None, compare=False, repr=False)

    @property
    def nix(self) -> Path:
        """The folder that a sandbox sees, read-only, as ``/nix``."""
        return self.path / "nix"

    @property
    def ref(self) -> str:
        """How to ask a cache for this bundle again: ``sha256-…``."""
        return f"sha256-{self.digest}"

    def check_platform(self, platform: str) -> None:
        """Raise BundleError unless this bundle runs on *platform* (such as ``linux/amd64``)."""
        try:
            platform = platforms.parse(platform).name
        except ValueError as error:
            raise BundleError(str(error)) from error
        if self.manifest.platform != platform:
            raise BundleError(
                f"bundle {self.manifest.title} is for {self.manifest.platform}, not for {platform};"
                f" build it with: agentix build --platform {platform}"
            )

    def check_protocol(self) -> None:
        """Raise BundleError unless this host and the bundle's runtime speak the same protocol."""
        if self.manifest.protocol != PROTOCOL:
            raise BundleError(
                f"bundle {self.manifest.title} speaks protocol {self.manifest.protocol} (agentix "
                f"{self.manifest.agentix}) and this host protocol {PROTOCOL} (agentix "
                f"{version('agentix')}); rebuild the bundle with: agentix build"
            )


def parse_ref(text: str) -> str | None:
    """Return the digest in *text*, a ref (``sha256-…`` or ``sha256:…``); None when it is none."""
    match = _REF.fullmatch(text)
    return match[1] if match else None


def load_entry(path: Path, *, use: bool = True) -> CachedBundle:
    """Return the deployed bundle at *path*, after a look at everything that a sandbox starts with.

    It is held from then on; that is no *use* if somebody only looks at it. Contents are not hashed
    again: they were when the entry was made, and nothing writes to it. Raises BundleError for an
    entry that is not complete.
    """
    digest = parse_ref(path.name)
    if digest is None:
        raise BundleError(f"{path} is not named after a bundle (sha256-…)")
    try:
        held = hold(path, use=use)
        with (path / MANIFEST).open("rb") as file:
            manifest = Manifest.parse(file.read(MAX_MANIFEST_BYTES + 1), label=str(path / MANIFEST))
        bootstrap = path / "nix/store" / manifest.root / "runtime/bootstrap.sh"
        complete = (
            (path / "nix/runtime").readlink().as_posix() == manifest.runtime
            and (path / "nix/run").is_dir()
            and bool(bootstrap.lstat().st_mode & 0o100)
            and {item.name for item in (path / "nix/store").iterdir()} >= manifest.closure.keys()
        )
    except OSError as error:
        why = error.strerror or error
        raise BundleError(f"{path} is not a complete bundle: {why}; {_WHAT_TO_DO}") from error
    if not complete:
        raise BundleError(f"{path} is not a complete bundle; {_WHAT_TO_DO}")
    return CachedBundle(path, digest, manifest, held)
