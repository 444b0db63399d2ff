"""Removing from a cache what nobody uses, while others deploy to it, open it, and remove from it.

An entry is taken by an exclusive lock that whoever uses it stands in the way of, and leaves by one
rename into a folder that belongs to this process; shared store paths leave only while nobody
deploys. What a process that is killed has not removed by then, the next one does.
"""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix.bundle import staging
from agentix.bundle.holding import LEASE, last_used, unused
from agentix.bundle.mounted import mounted
from agentix.bundle.notes import forget
from agentix.bundle.objects import Objects
from agentix.bundle.usage import Usage, contents, entries, read_manifest, survey
from agentix.errors import BundleError
from agentix.folders import what_to_do

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from agentix.bundle.usage import Deployed

_PATIENCE = 0.2  # seconds; who only looks whether a bundle is used is gone by then

DERIVED = ("uv",)
"""Folders of the cache with more of a bundle, in folders whose names begin with its own."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection took, and what it would have taken but for those who use it.

    ``freed`` is how many bytes of contents that was, ``left`` how many there are.
    """

    removed: tuple[Deployed, ...]
    kept: tuple[Deployed, ...]
    freed: int
    left: int


def collect(
    root: Path, *, older_than: float, max_size: int | None = None, dry_run: bool = False
) -> Collected:
    """Remove the bundles of the cache *root* that were not used for *older_than* seconds.

    With *max_size* (bytes of contents) also others, the one used longest ago first, until what is
    left is no more than that. What is in use stays, whatever its age. Store paths that no bundle
    has, and what killed processes have left, go in any case; notes of that age go, too. *dry_run*
    removes nothing.
    Raises BundleError when the cache cannot be written to.
    """
    root = root.absolute()
    before = survey(root)
    chosen, kept = _choose(before, older_than, max_size)
    if dry_run:
        rest = tuple(each for each in before.bundles if each not in chosen)
        left = Usage(rest, {}, before.having).size
        return Collected(tuple(chosen), tuple(kept), before.size - left, left)
    try:
        removed, stayed = _remove(root, chosen)
    except OSError as error:
        raise _cannot(root, error) from error
    forget(root, older_than=older_than, refs={path.name for path in entries(root)})
    left = survey(root).size
    return Collected(tuple(removed), (*kept, *stayed), max(0, before.size - left), left)


def discard(root: Path, damaged: Collection[Path]) -> list[Path]:
    """Remove *damaged* bundles and shared store paths of the cache *root*, and return which stayed.

    That is what is in use. Raises BundleError when the cache cannot be written to.
    """
    root = root.absolute()
    bundles = [bundle for bundle in survey(root).bundles if bundle.path in damaged]
    objects = {path for path in Objects(root / "store").all().values() if path in damaged}
    try:
        removed, _ = _remove(root, bundles, objects)
    except OSError as error:
        raise _cannot(root, error) from error
    gone = {bundle.path for bundle in removed}
    return [path for path in damaged if path not in gone and os.path.lexists(path)]


def _cannot(root: Path, error: OSError) -> BundleError:
    return BundleError(
        f"cannot remove anything from the cache {root}: {error.strerror or error};"
        f" {what_to_do(error)}"
    )


def _choose(
    usage: Usage, older_than: float, max_size: int | None
) -> tuple[list[Deployed], list[Deployed]]:
    """Return what to remove, and what should be removed but for its use; the oldest first."""
    chosen: list[Deployed] = []
    kept: list[Deployed] = []
    having = usage.having.copy()
    left = usage.size - sum(usage.loose.values())
    now = time.time()
    for bundle in reversed(usage.bundles):
        too_much = max_size is not None and left > max_size
        # A clock that was wrong, or is, does not keep what is of no age.
        if not too_much and max(0.0, now - bundle.used) < older_than:
            continue
        if bundle.in_use:
            kept.append(bundle)
            continue
        chosen.append(bundle)
        for name, size in bundle.contents.items():
            having[name] -= 1
            left -= size if having[name] <= 0 else 0
    return chosen, kept


def _remove(
    root: Path, chosen: list[Deployed], objects: Collection[Path] | None = None
) -> tuple[list[Deployed], list[Deployed]]:
    """Remove the bundles *chosen* and the shared store paths *objects*, if None all unused ones."""
    removed: list[Deployed] = []
    stayed: list[Deployed] = []
    if not root.is_dir():
        return removed, stayed
    # What is in this folder when the block ends, or after a kill, is removed.
    with staging.hold(root / "staging", f"removal-{secrets.token_hex(8)}") as bin_:

        def away(path: Path) -> None:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)  # moving a folder takes the right to write to it
            path.rename(bin_ / secrets.token_hex(8))

        for bundle in chosen:
            (removed if _take(root, bundle, away) else stayed).append(bundle)
        _take_objects(root, objects, away)
    return removed, stayed


def _take(root: Path, bundle: Deployed, away: Callable[[Path], None]) -> bool:
    """Take an entry away, unless somebody has begun to use it."""
    try:
        with unused(bundle.path, _PATIENCE) as free:
            # Only now: until here its user could make a mount, and be killed.
            if not free or last_used(bundle.path) > bundle.used or bundle.digest in mounted():
                return False
            # Before the bundle itself: whoever is killed in between has not forgotten them, and
            # nobody who deploys it again meanwhile loses what he finds of it.
            for path in _derived(root, bundle.ref):
                away(path)
            away(bundle.path)
            return True
    except (FileNotFoundError, NotADirectoryError):
        return _take_broken(root, bundle, away)


def _take_broken(root: Path, bundle: Deployed, away: Callable[[Path], None]) -> bool:
    """Take what nobody can hold, as long as nobody can put something whole in its place."""
    objects = Objects(root / "store")
    objects.folder.mkdir(exist_ok=True)
    with objects.unused() as nobody_deploys:
        if not os.path.lexists(bundle.path):
            return True  # somebody else has
        if not nobody_deploys or os.path.lexists(bundle.path / LEASE):
            return False
        if bundle.digest in mounted():
            return False
        away(bundle.path)
    return True


def _derived(root: Path, ref: str) -> list[Path]:
    """Return what was made of a bundle."""
    return [path for folder in DERIVED for path in (root / folder).glob(f"{ref}*")]


def _take_objects(
    root: Path, chosen: Collection[Path] | None, away: Callable[[Path], None]
) -> None:
    """Take shared store paths, unless somebody is deploying right now.

    Those are the *chosen* ones, or if None, all that no bundle has.
    """
    objects = Objects(root / "store")
    with objects.unused() as free:
        if not free:
            return
        found = objects.all()
        if chosen is None:
            needed = {name for path in entries(root) for name in contents(read_manifest(path))}
            chosen = [path for name, path in found.items() if name not in needed]
        for path in found.values():
            if path in chosen:
                away(path)
