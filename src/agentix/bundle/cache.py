"""The deployed bundles of this machine: one folder each, named by the SHA-256 of the bundle's tar.

    <root>/bundles/sha256-<hex>/    manifest.json, lease, nix/store/…, nix/runtime, nix/run/ (empty)
    <root>/store/                   store paths that bundles share
    <root>/staging/                 entries in the making; without a living owner it is litter
    <root>/memory/                  digests of tars already read

An entry appears by one rename, after everything in it has been verified, and is never written to
again; the lock on its file ``lease`` tells who uses it. Its manifest determines its tar, byte for
byte; so when a bundle's manifest is already here, a tar needs only to be hashed, and a store path
of Nix not even that. Both give the same entry.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.bundle import reader, staging, writer
from agentix.bundle.compression import is_compressed, tar_chunks
from agentix.bundle.entry import MANIFEST, CachedBundle, load_entry, parse_ref
from agentix.bundle.holding import hold_new, set_aside
from agentix.bundle.locate import locate, opened
from agentix.bundle.memory import Memory
from agentix.bundle.objects import Objects
from agentix.bundle.pipe import pumped
from agentix.bundle.room import check_room
from agentix.errors import BundleError
from agentix.folders import cache_root, what_to_do
from agentix.progress import SILENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agentix.bundle.manifest import Manifest
    from agentix.nix import StorePath
    from agentix.progress import Progress, Step


class BundleCache:
    """Deploys bundles into the folder *root*, and finds them there.

    Every method blocks for as long as reading a bundle takes: from async code, use a thread.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = cache_root() if root is None else Path(root).absolute()
        self._bundles = self.root / "bundles"
        self._staging = self.root / "staging"
        self._memory = Memory(self.root / "memory")
        self._objects = Objects(self.root / "store")

    def open(self, ref: str | Path, progress: Progress = SILENT) -> CachedBundle:
        """Return the bundle that *ref* names, deploying it if need be.

        *ref* is a tar, ``sha256-…``, the folder of a deployed bundle, or a result of ``nix build``.
        Raises BundleError when it is none of these, or not intact.
        """
        digest = parse_ref(str(ref))
        if digest is not None:
            return self._find(digest)
        path, what = locate(ref)
        if what == "built":
            return self._open_nix(path, progress)
        if what == "deployed":
            return load_entry(path)
        return self.deploy(path, progress=progress)

    def deploy(
        self, tar: Path, expect: str | None = None, progress: Progress = SILENT
    ) -> CachedBundle:
        """Unpack and verify the file *tar*; nothing but a look when that has been done before.

        *expect* is the digest that it must have (``sha256-…``, ``sha256:…`` or hex).
        Raises BundleError for a corrupt, hostile or unexpected tar and for an unusable cache, and
        then leaves nothing behind.
        """
        wanted = None if expect is None else _digest(expect)
        with opened(tar) as file, self._explained(str(tar)):
            before = os.fstat(file)
            entry = self._remembered(before)
            unknown = entry is None and is_compressed(file)
            total = None if unknown else before.st_size
            with progress.step("deploy", total=total, unit="bytes") as step:
                if entry is None:
                    entry = self._read(file, wanted, step)
                    self._memory.remember(before, os.fstat(file), entry.digest)
                else:
                    step.outcome("already deployed")
        _expect(entry.digest, wanted, str(tar))
        return entry

    def deploy_store_path(
        self, root: Path, closure: Sequence[StorePath], progress: Progress = SILENT
    ) -> CachedBundle:
        """Deploy the built bundle *root*, given its *closure*, with no tar in between.

        The entry is the one that the tar of the same bundle gives.
        """
        with self._explained(str(root)):
            manifest = writer.describe(root, closure)
            total = sum(entry.size for entry in closure)
            with progress.step("deploy", total=total, unit="bytes") as step:
                entry = self._same(manifest)
                if entry is not None:
                    step.outcome("already deployed")
                    return entry
                with self._place_for(manifest) as folder, self.sharing(manifest) as known:
                    entry = self._same(manifest)
                    if entry is not None:
                        step.outcome("already deployed")
                        return entry
                    with pumped(
                        lambda write: writer.stream(manifest, closure, write, step, known)
                    ) as chunks:
                        entry = self._unpack(chunks, folder)
                    step.outcome(_summary(entry))
                    return entry

    def deploy_stream(
        self,
        manifest: Manifest,
        tar: Callable[[Mapping[str, Path]], Iterator[bytes]],
        *,
        expect: str,
        what: str,
    ) -> CachedBundle:
        """Deploy the bundle of *manifest*, whose *tar* comes from somewhere else, called *what*.

        *tar* is told where :meth:`sharing` has store paths, and yields all of it. *expect* is the
        digest that it must have, in any form. Raises BundleError as :meth:`deploy` does.
        """
        wanted = _digest(expect)
        with self._explained(what):
            entry = self._same(manifest)
            if entry is None:
                with self._place_for(manifest) as folder, self.sharing(manifest) as known:
                    entry = self._same(manifest) or self._unpack(tar(known), folder, wanted=wanted)
            _expect(entry.digest, wanted, "it")
            return entry

    @contextmanager
    def sharing(self, manifest: Manifest) -> Iterator[dict[str, Path]]:
        """Give those store paths of *manifest* that are here already, by name, while they stay.

        That is none where there is no cache, and there cannot be one.
        """
        with ExitStack() as held:
            try:
                held.enter_context(self._objects.used())
            except OSError:
                yield {}
                return
            yield self._shared(manifest)

    def _shared(self, manifest: Manifest) -> dict[str, Path]:
        return {
            name: tree
            for name, content in manifest.closure.items()
            if name != manifest.root and (tree := self._objects.tree(name, content)).is_dir()
        }

    def _find(self, digest: str) -> CachedBundle:
        path = self._bundles / f"sha256-{digest}"
        if os.path.lexists(path):
            return load_entry(path)
        others = sum(1 for _ in self._entries())
        there = "1 other is" if others == 1 else f"{others} others are"
        raise BundleError(
            f"bundle sha256-{digest} is not deployed here ({there} in {self._bundles});"
            " deploy its tar first: agentix deploy BACKEND FILE.bundle.tar"
        )

    def _open_nix(self, real: Path, progress: Progress) -> CachedBundle:
        if real.parent.parts[-2:] != ("nix", "store"):
            raise BundleError(
                f"{real} looks like a built bundle, but it is a copy outside /nix/store;"
                " use the result of nix build itself, or a .bundle.tar"
            )
        from agentix.nix import closure

        return self.deploy_store_path(real, closure(real), progress)

    def _entries(self) -> Iterator[Path]:
        with suppress(OSError):
            yield from (path for path in self._bundles.iterdir() if parse_ref(path.name))

    def _complete(self, digest: str) -> CachedBundle | None:
        with suppress(BundleError):
            return load_entry(self._bundles / f"sha256-{digest}")
        return None

    def _remembered(self, status: os.stat_result) -> CachedBundle | None:
        digest = self._memory.recall(status)
        return None if digest is None else self._complete(digest)

    def _same(self, manifest: Manifest, tar: int | None = None) -> CachedBundle | None:
        """Return the entry that has this very manifest, and came of the same tar if one is given.

        That is an open file.
        """
        text = manifest.to_bytes()
        for path in self._entries():
            with suppress(OSError):
                file = path / MANIFEST
                if file.stat().st_size == len(text) and file.read_bytes() == text:
                    entry = self._complete(path.name.removeprefix("sha256-"))
                    if entry is not None and (tar is None or _sha256(tar) == entry.digest):
                        return entry
        return None

    def _read(self, file: int, wanted: str | None, step: Step) -> CachedBundle:
        manifest = reader.read_manifest(tar_chunks(file))
        entry = self._same(manifest, file)
        if entry is not None:
            step.outcome("already deployed")
            return entry
        with self._place_for(manifest) as folder:
            entry = self._same(manifest, file)
            if entry is not None:
                step.outcome("already deployed")
                return entry
            entry = self._unpack(tar_chunks(file), folder, step.advance, wanted)
            step.outcome(_summary(entry))
            return entry

    @contextmanager
    def _place_for(self, manifest: Manifest) -> Iterator[Path]:
        """Give the folder in which that bundle is prepared, and keep what it may share."""
        with self._objects.used(), staging.hold(self._staging, _key(manifest)) as folder:
            shared = self._shared(manifest)
            new = [each for name, each in manifest.closure.items() if name not in shared]
            check_room(folder, sum(content.size for content in new))
            yield folder

    def _unpack(
        self,
        chunks: Iterator[bytes],
        folder: Path,
        advance: Callable[[int], object] = reader.ignore,
        wanted: str | None = None,
    ) -> CachedBundle:
        """Read a tar into *folder*, which is ours alone, and move the result to its place."""
        new = folder / "new"
        new.mkdir(mode=0o700)
        new.chmod(0o700)
        shelf = reader.Shelf(self._objects, new / "nix/store", folder / "shared")
        read = reader.read_bundle(chunks, new, advance, shelf)
        _expect(read.sha256, wanted, "it")
        held = hold_new(new)
        final = self._bundles / f"sha256-{read.sha256}"
        self._bundles.mkdir(exist_ok=True)
        # What is there is not complete, or it would have been found before.
        set_aside(final, folder / "old")
        new.rename(final)
        return CachedBundle(final, read.sha256, read.manifest, held)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Turn whatever goes wrong into one line about *what*."""
        try:
            yield
        except BundleError as error:
            raise BundleError(f"cannot deploy {what}: {error}") from error
        except OSError as error:
            raise BundleError(
                f"cannot deploy {what} into the cache {self.root}: {error.strerror or error};"
                f" {what_to_do(error)}"
            ) from error


def _summary(entry: CachedBundle) -> str:
    closure = entry.manifest.closure
    size = sum(content.size for content in closure.values())
    return f"{len(closure)} store paths, {size / 1e6:.1f} MB"


def _key(manifest: Manifest) -> str:
    return hashlib.sha256(manifest.to_bytes()).hexdigest()[:32]


def _digest(expect: str) -> str:
    digest = parse_ref(expect) or parse_ref(f"sha256-{expect}")
    if digest is None:
        raise BundleError(
            f"{expect!r} is not the digest of a bundle; that is sha256-… or 64 hex digits"
        )
    return digest


def _expect(digest: str, wanted: str | None, what: str) -> None:
    if wanted is not None and digest != wanted:
        raise BundleError(f"{what} is sha256-{digest}, but sha256-{wanted} was expected")


def _sha256(file: int) -> str:
    digest = hashlib.sha256()
    for chunk in tar_chunks(file):
        digest.update(chunk)
    return digest.hexdigest()
