"""What a cache holds, bundle by bundle: how large, how much of it nothing else has, and its use.

Sizes are those of contents (the NAR's, as Nix counts them), so they are the same on every disk.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix.bundle.entry import MANIFEST, parse_ref
from agentix.bundle.holding import last_used, unused
from agentix.bundle.manifest import MAX_MANIFEST_BYTES, Manifest
from agentix.bundle.mounted import mounted
from agentix.bundle.objects import Objects, key
from agentix.errors import BundleError

if TYPE_CHECKING:
    from pathlib import Path

_GLANCE = 0.01  # seconds; another who only looks whether a bundle is used is gone by then


@dataclass(frozen=True, slots=True)
class Deployed:
    """One bundle of a cache; ``manifest`` is None where the entry is not whole.

    ``used`` is when it was last used, in seconds since 1970, ``in_use`` whether it is now.
    """

    path: Path
    manifest: Manifest | None
    used: float
    in_use: bool
    contents: dict[str, int]
    """The size of each of its store paths, by what that is called among the shared ones."""

    @property
    def ref(self) -> str:
        """Its name: ``sha256-…``."""
        return self.path.name

    @property
    def digest(self) -> str:
        """The SHA-256 (hex) of its tar."""
        return self.ref.removeprefix("sha256-")

    @property
    def size(self) -> int:
        """How many bytes are in it."""
        return sum(self.contents.values())


@dataclass(frozen=True, slots=True)
class Usage:
    """All bundles of a cache, the one that was used last first.

    ``loose`` are the shared store paths that no bundle has, and their sizes.
    """

    bundles: tuple[Deployed, ...]
    loose: dict[str, int]
    having: Counter[str]
    """How many bundles have each of the store paths that are shared."""

    @property
    def size(self) -> int:
        """How many bytes there are, those that are shared counted once."""
        total = sum(self.loose.values())
        seen: set[str] = set()
        for bundle in self.bundles:
            for name, size in bundle.contents.items():
                if name not in seen:
                    total += size
                if name in self.having:
                    seen.add(name)
        return total

    def shared(self, bundle: Deployed) -> int:
        """Return how many of the bytes of *bundle* other bundles have, too."""
        return sum(size for name, size in bundle.contents.items() if self.having[name] > 1)


def survey(root: Path) -> Usage:
    """Look at the cache *root*. Nothing is hashed, and nothing needs to be writable."""
    objects = Objects(root / "store")
    shareable = objects.all()
    seen = mounted()
    found = [_look(path, seen) for path in entries(root)]
    having = Counter(name for bundle in found for name in bundle.contents if name in shareable)
    loose = {name: objects.size(name) for name in shareable if name not in having}
    found.sort(key=lambda bundle: (-bundle.used, bundle.ref))
    return Usage(tuple(found), loose, having)


def entries(root: Path) -> list[Path]:
    """Return where the entries of the cache *root* are, whole or not."""
    try:
        return [path for path in (root / "bundles").iterdir() if parse_ref(path.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BundleError(f"cannot read the cache {root}: {error.strerror or error}") from error


def read_manifest(entry: Path) -> Manifest | None:
    """Return the manifest of an *entry*; None when it has none that can be read."""
    try:
        with (entry / MANIFEST).open("rb") as file:
            return Manifest.parse(file.read(MAX_MANIFEST_BYTES + 1))
    except (OSError, BundleError):
        return None


def contents(manifest: Manifest | None) -> dict[str, int]:
    """Return the size of each store path, by what it is called among the shared ones."""
    closure = manifest.closure if manifest is not None else {}
    return {key(name, content): content.size for name, content in closure.items()}


def _look(path: Path, mounts: set[str]) -> Deployed:
    manifest = read_manifest(path)
    try:
        with unused(path, _GLANCE) as free:
            in_use = not free
    except OSError:
        in_use = False  # it cannot be held
    in_use = in_use or path.name.removeprefix("sha256-") in mounts
    return Deployed(path, manifest, last_used(path), in_use, contents(manifest))
