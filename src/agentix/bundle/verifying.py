"""Whether a bundle is what it says: every byte read again, and what differs called by its name."""

from __future__ import annotations

import hashlib
import os
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.bundle import archive, reader, writer
from agentix.bundle.archive import Member
from agentix.bundle.cache import BundleCache
from agentix.bundle.compression import is_compressed, tar_chunks
from agentix.bundle.entry import load_entry, parse_ref
from agentix.bundle.frame import beginning, ending
from agentix.bundle.lane import Lane
from agentix.bundle.linking import same_files
from agentix.bundle.locate import locate, opened
from agentix.bundle.members import Members
from agentix.bundle.nar import NarHash, nar_hash
from agentix.bundle.objects import Objects, key
from agentix.bundle.tree import Kind, contents, walk
from agentix.bundle.usage import contents as contents_of
from agentix.bundle.usage import entries, read_manifest
from agentix.errors import BundleError
from agentix.nix import StorePath
from agentix.progress import SILENT
from agentix.text import plain, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from agentix.bundle.entry import CachedBundle
    from agentix.bundle.manifest import Manifest
    from agentix.progress import Progress

_UNKNOWN = "it differs, and which of its files does is not known"


@dataclass(frozen=True, slots=True)
class Difference:
    """One store path (None: the entry itself) that is not what it was, and in which way."""

    store_path: str | None
    problem: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What was looked at, a bundle or a store path that bundles share, and how it differs.

    ``digest`` is that of a bundle's tar (hex), where it is known.
    """

    path: Path
    title: str
    differences: tuple[Difference, ...]
    digest: str = ""


def check_entry(
    entry: CachedBundle,
    objects: Objects,
    advance: Callable[[int], object] = reader.ignore,
) -> list[Difference]:
    """Compare a deployed bundle with its manifest, and with its name, which is its tar's digest.

    *objects* are those of its cache. *advance* is told how many bytes of contents were read.
    """
    store = entry.nix / "store"
    found = _extra(entry)
    manifest, digest = entry.manifest, hashlib.sha256()
    different: dict[str, str] = {}

    def compare(path: StorePath, nar: hashlib._Hash, size: int) -> None:
        if (nar.hexdigest(), size) != (path.sha256, path.size):
            different[path.path.name] = ""

    with Lane("bundle-digest") as digests, Lane("bundle-nar") as nars:
        out = writer.Chunks(lambda data: digests.do(partial(digest.update, data)))
        out.add(beginning(manifest))
        for name, content in sorted(manifest.closure.items()):
            path = StorePath(store / name, content.sha256, content.size)
            try:
                writer.add_store_path(path, out, nars, compare)
            except (OSError, BundleError) as error:
                different[name] = _reason(error)
            advance(content.size)
        out.add(ending(manifest))
        out.flush()
        nars.drain()
        digests.drain()
    for name, reason in different.items():
        known = objects.find(name, manifest.closure[name])
        found.append(Difference(name, _files(store / name, name, known) or reason or _UNKNOWN))
    if not found and digest.hexdigest() != entry.digest:
        found.append(Difference(None, "manifest.json is not the one that came with this bundle"))
    return found


def check_cache(
    root: Path, refs: Collection[str] = (), progress: Progress = SILENT
) -> list[Checked]:
    """Compare the bundles of the cache *root* with their manifests: those in *refs*, or all.

    If all, also the store paths that they share. Raises BundleError for a ref that is not there.
    """
    objects = Objects(root / "store")
    places = {path.name: path for path in entries(root)}
    refs = [f"sha256-{digest}" if (digest := parse_ref(ref)) else ref for ref in refs]
    for ref in refs:
        if ref not in places:
            raise BundleError(
                f"bundle {quoted(ref)} is not deployed in {root}; see: agentix cache list"
            )
    usage = [(path, contents_of(read_manifest(path))) for path in places.values()]
    total = sum(sum(sizes.values()) for path, sizes in usage if not refs or path.name in refs)
    found: list[Checked] = []
    intact: dict[str, Path] = {}
    with progress.step("verify", total=total, unit="bytes") as step:
        for ref in sorted(refs or places):
            try:
                entry = load_entry(places[ref], use=False)
            except BundleError as error:
                found.append(Checked(places[ref], "", (Difference(None, str(error)),)))
                continue
            differences = tuple(check_entry(entry, objects, step.advance))
            found.append(Checked(entry.path, entry.manifest.title, differences))
            intact |= _intact(entry, differences)
        if not refs:
            found += _check_objects(objects, intact)
        damaged = sum(1 for each in found if each.differences)
        step.outcome(f"{len(places)} bundles, {damaged} damaged" if damaged else "all intact")
    return found


def _intact(entry: CachedBundle, differences: Collection[Difference]) -> dict[str, Path]:
    """Return where those store paths are that were read and found intact, by what they are called.

    That is among the shared ones.
    """
    different = {difference.store_path for difference in differences}
    return {
        key(name, content): entry.nix / "store" / name
        for name, content in entry.manifest.closure.items()
        if name not in different
    }


def _check_objects(objects: Objects, intact: Mapping[str, Path]) -> list[Checked]:
    """Compare shared store paths with what they were, but for those whose files are *intact*."""
    found = []
    for called, path in sorted(objects.all().items()):
        with suppress(OSError, BundleError):
            if called in intact and same_files(path / "tree", intact[called]):
                continue
        differences = tuple(_check_object(called, path))
        if differences:
            found.append(Checked(path, "", differences))
    return found


def _check_object(called: str, path: Path) -> list[Difference]:
    known = Members.load(path / "members.json")
    if known is None or key(known.name, known.content) != called:
        return [Difference(called, "members.json is not what was written")]
    tree = path / "tree"
    try:
        same = nar_hash(tree) == NarHash(known.content.sha256, known.content.size)
        reason = ""
    except (OSError, BundleError) as error:
        same, reason = False, _reason(error)
    if same:
        return []
    return [Difference(known.name, _files(tree, known.name, known) or reason or _UNKNOWN)]


def check(ref: str | Path, progress: Progress = SILENT) -> Checked:
    """Compare a bundle, in whichever form, with what it promises; unpack nothing.

    *ref* is what a cache's ``open`` takes. Raises BundleError when it is no bundle at all.
    """
    deployed = parse_ref(str(ref)) is not None
    path, what = (Path(ref), "deployed") if deployed else locate(ref)
    if what == "deployed":
        entry = BundleCache().open(ref if deployed else path)
        with progress.step("verify", total=_size(entry.manifest), unit="bytes") as step:
            objects = Objects(entry.path.parent.parent / "store")
            found = tuple(check_entry(entry, objects, step.advance))
        return Checked(entry.path, entry.manifest.title, found, entry.digest)
    if what == "built":
        return _check_built(path, progress)
    with opened(path) as file:
        total = None if is_compressed(file) else os.fstat(file).st_size
        with progress.step("verify", total=total, unit="bytes") as step:
            try:
                read = reader.read_bundle(tar_chunks(file), None, step.advance)
            except BundleError as error:
                return Checked(path, "", (Difference(None, str(error)),))
    return Checked(path, read.manifest.title, (), read.sha256)


def _check_built(path: Path, progress: Progress) -> Checked:
    from agentix.nix import closure

    paths = closure(path)
    manifest = writer.describe(path, paths)
    digest = hashlib.sha256()
    with progress.step("verify", total=_size(manifest), unit="bytes") as step:
        try:
            writer.stream(manifest, paths, digest.update, step)
        except BundleError as error:
            return Checked(path, manifest.title, (Difference(None, str(error)),))
    return Checked(path, manifest.title, (), digest.hexdigest())


def _size(manifest: Manifest) -> int:
    return sum(content.size for content in manifest.closure.values())


def _extra(entry: CachedBundle) -> list[Difference]:
    """Return what is in an entry though its manifest does not say so."""
    found: list[Difference] = []
    try:
        names = {path.name for path in (entry.nix / "store").iterdir()}
        added = [f"store/{name}" for name in names - entry.manifest.closure.keys()]
        added += [f"run/{path.name}" for path in (entry.nix / "run").iterdir()]
    except OSError as error:
        return [Difference(None, _reason(error))]
    found += [Difference(None, f"nix/{plain(name)} was added") for name in sorted(added)]
    return found


def _files(path: Path, name: str, known: Members | None) -> str:
    """Say which files below *path* are not as they came in, as far as that is *known*."""
    if known is None:
        return ""
    expected = known.by_path()
    said: list[str] = []
    try:
        for node in walk(path):
            below = b"/".join(node.parts)
            checksum = expected.pop(below.decode("latin-1"), None)
            shown = plain(below) or "it"
            if checksum is None:
                said.append(f"{shown} was added")
                continue
            full = b"/".join((b"nix/store", name.encode(), *node.parts))
            member = Member(full, node.kind, node.size, node.executable, node.target)
            value = zlib.crc32(member.header())
            if node.kind is Kind.FILE:
                for piece in contents(node):
                    value = zlib.crc32(piece, value)
                value = zlib.crc32(bytes(archive.padding(node.size)), value)
            if value != checksum:
                said.append(f"{shown} differs")
    except (OSError, BundleError) as error:
        return _reason(error)
    said += [f"{plain(below.encode('latin-1')) or 'it'} is missing" for below in expected]
    return _shortened(said)


def _shortened(said: list[str]) -> str:
    more = len(said) - 5
    return ", ".join(said[:5]) + (f", and {more} more" if more > 0 else "")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return str(error)
