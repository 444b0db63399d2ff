"""A bundle's tar, which may come from anywhere, becomes a folder: verified while it is read.

The reader knows what has to come next and refuses everything else: the manifest, then the store
paths that it declares in their order, each one hashed as Nix does, then ``nix/runtime``, two
blocks of zeros, and the end of the file. What is on disk when it returns is exactly what the
manifest promises; after an error the folder is worthless and the caller removes it. A store path
that the cache has from another bundle is taken from there, once the tar's proves to be the same.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from agentix.bundle.blocks import Blocks
from agentix.bundle.folder import Folder, Nowhere
from agentix.bundle.lane import Lane
from agentix.bundle.manifest import MAX_MANIFEST_BYTES, Info, Manifest
from agentix.bundle.members import MembersNote
from agentix.bundle.nar import Nar, OutOfOrder
from agentix.bundle.tree import Kind
from agentix.errors import BundleError
from agentix.text import plain, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentix.bundle.archive import Member
    from agentix.bundle.manifest import StoreObject
    from agentix.bundle.members import Members
    from agentix.bundle.objects import Objects

_STORE = [b"nix", b"store"]


def ignore(amount: int) -> None:
    """Do not care how far the work is."""


@dataclass(frozen=True, slots=True)
class ReadBundle:
    """What was read: the manifest as it stands in the tar, and the tar's SHA-256 (hex) and size."""

    manifest: Manifest
    sha256: str
    size: int


def read_manifest(chunks: Iterator[bytes]) -> Manifest:
    """Read the manifest at the beginning of a tar, and no chunk after it."""
    return _manifest(Blocks(chunks, lambda data: None))


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where store paths of the bundle in the folder *store* are taken from, and shared.

    *scratch* is a private folder on the same file system.
    """

    objects: Objects
    store: Path
    scratch: Path


def read_bundle(
    chunks: Iterator[bytes],
    into: Path | None,
    advance: Callable[[int], object] = ignore,
    shelf: Shelf | None = None,
) -> ReadBundle:
    """Unpack the tar that *chunks* yields into the existing, private, empty folder *into*.

    None unpacks nothing, and verifies all the same.
    *advance* is told how many bytes have been read. Memory is bounded whatever the tar says.
    With a *shelf*, whose objects are in use, store paths are shared with other bundles.

    Raises BundleError for anything but an intact bundle, OSError when *into* cannot be written.
    """
    sha256 = hashlib.sha256()
    target = Folder(into) if into is not None else Nowhere()
    with Lane("bundle-digest") as digests, Lane("bundle-nar") as nars, target as folder:

        def arrived(data: bytes) -> None:
            digests.do(partial(sha256.update, data))
            advance(len(data))

        blocks = Blocks(chunks, arrived)
        manifest = _manifest(blocks)
        folder.begin()
        _Unpacking(manifest, blocks, folder, nars, shelf).run()
        nars.drain()
        digests.drain()
        folder.finish(manifest)
    return ReadBundle(manifest, sha256.hexdigest(), blocks.size)


def _manifest(blocks: Blocks) -> Manifest:
    try:
        member = blocks.member()
    except BundleError as error:
        raise BundleError(f"it is not a bundle made by agentix build ({error})") from error
    if member is None or member.path != b"manifest.json" or member.kind is not Kind.FILE:
        shown = "nothing" if member is None else repr(plain(member.path))
        raise BundleError(f"it is not a bundle: it begins with {shown}, not with manifest.json")
    if member.size > MAX_MANIFEST_BYTES or member.executable:
        raise BundleError(f"its manifest.json is executable or above {MAX_MANIFEST_BYTES} bytes")
    text = blocks.take(member.size)
    blocks.skip_padding(member)
    manifest = Manifest.parse(text, label="its manifest.json")
    if manifest.to_bytes() != text:
        raise BundleError("its manifest.json is not written as agentix build writes it")
    return manifest


class _StorePath:
    """The store path that is being unpacked: hashed as it comes, compared when it ends."""

    def __init__(
        self,
        name: str,
        promised: StoreObject,
        lane: Lane,
        share: Callable[[Members | None], object],
    ) -> None:
        self.name = name
        self.top = name.encode()
        self.nar = Nar(self._update)
        self.note = MembersNote(lane)
        self._share = share
        self._promised = promised
        self._lane = lane
        self._digest = hashlib.sha256()

    def enter(self, member: Member, parts: list[bytes], header: bytes) -> None:
        try:
            self.nar.enter(parts[3:])
        except OutOfOrder as error:
            raise BundleError(f"member {plain(member.path)!r} {error}") from error
        if self.nar.size_so_far + member.size > self._promised.size:
            raise BundleError(
                f"member {plain(member.path)!r} makes its store path larger than the"
                f" {self._promised.size} bytes that the manifest declares"
            )
        self.note.begin(parts[3:], header, member.size)

    def content(self, data: memoryview) -> None:
        self.nar.content(data)
        self.note.content(data)

    def close(self) -> None:
        self._lane.do(partial(self._compare, self.nar.finish()))

    def _update(self, data: bytes | memoryview) -> None:
        self._lane.do(partial(self._digest.update, data))

    def _compare(self, size: int) -> None:
        if size != self._promised.size or self._digest.hexdigest() != self._promised.sha256:
            raise BundleError(
                f"store path {self.name} does not have the content that the manifest declares"
            )
        self._share(self.note.finish(self.name, self._promised))


class _Unpacking:
    """One pass over the members between the manifest and the end."""

    def __init__(
        self,
        manifest: Manifest,
        blocks: Blocks,
        folder: Folder | Nowhere,
        lane: Lane,
        shelf: Shelf | None,
    ) -> None:
        self._shelf = shelf
        self._manifest = manifest
        self._blocks = blocks
        self._folder = folder
        self._lane = lane
        self._waiting = iter(sorted(manifest.closure.items()))
        root = b"nix/store/" + manifest.root.encode()
        self._bootstrap = root + b"/runtime/bootstrap.sh"
        self._info = root + b"/info.json"
        self._has_bootstrap = False
        self._has_info = False

    def run(self) -> None:
        current: _StorePath | None = None
        while (member := self._blocks.member()) is not None and member.path != b"nix/runtime":
            parts = member.path.split(b"/")
            if parts[:2] != _STORE or len(parts) < 3:
                raise BundleError(f"member {plain(member.path)!r} is outside the store paths")
            if current is None or parts[2] != current.top:
                if current is not None:
                    current.close()
                name, promised = self._next(plain(parts[2], None))
                known = self._known(name, promised) if len(parts) == 3 else None
                if known is not None:
                    self._take(known)
                    current = None
                    continue
                current = _StorePath(name, promised, self._lane, self._share)
            current.enter(member, parts, self._blocks.header)
            self._unpack(member, parts, current)
        if current is not None:
            current.close()
        missing, _ = next(self._waiting, (None, None))
        if missing is not None:
            raise BundleError(f"store path {missing} is declared but missing")
        self._runtime(member)
        if self._blocks.member() is not None:
            raise BundleError("it has members after nix/runtime")
        self._blocks.end()

    def _next(self, name: str) -> tuple[str, StoreObject]:
        """Begin the store path *name*, which must be the next one that the manifest declares."""
        if name not in self._manifest.closure:
            raise BundleError(f"store path {quoted(name)} is not declared in the manifest")
        expected, promised = next(self._waiting, (None, None))
        if promised is None or expected != name:
            raise BundleError(f"store path {name!r} comes twice or out of order")
        return name, promised

    def _known(self, name: str, promised: StoreObject) -> Members | None:
        """Return how that store path looks in a tar, if the cache has it.

        The root is always unpacked: it has to be looked into, and no other bundle has it.
        """
        if self._shelf is None or name == self._manifest.root:
            return None
        return self._shelf.objects.find(name, promised)

    def _take(self, known: Members) -> None:
        """Pass over a store path that the cache has, whose first header was read; place that."""
        done, checksum = len(self._blocks.header), zlib.crc32(self._blocks.header)
        for path, length, expected in zip(known.paths, known.lengths, known.checksums, strict=True):
            for piece in self._blocks.pieces(max(0, length - done)):
                checksum = zlib.crc32(piece, checksum)
            if checksum != expected:
                where = f"{known.name}/{path}".rstrip("/").encode("latin-1")
                raise BundleError(
                    f"store path {known.name} does not have the content that the manifest declares"
                    f" ({plain(where)!r} differs)"
                )
            done = checksum = 0
        if self._shelf is not None:
            place = self._shelf.objects.place
            self._lane.do(partial(place, known, self._shelf.store / known.name))

    def _share(self, members: Members | None) -> None:
        if members is None or self._shelf is None:
            return
        if members.name != self._manifest.root:
            tree = self._shelf.store / members.name
            self._shelf.objects.share(tree, members, self._shelf.scratch)

    def _unpack(self, member: Member, parts: list[bytes], current: _StorePath) -> None:
        nar = current.nar
        if member.kind is Kind.DIRECTORY:
            nar.directory()
            self._folder.directory(parts)
        elif member.kind is Kind.SYMLINK:
            nar.symlink(member.target)
            self._folder.symlink(parts, member.target)
        else:
            pieces = self._blocks.pieces(member.size)
            if member.path == self._info:
                pieces = iter((self._read_info(member.size, pieces),))
            elif member.path == self._bootstrap:
                self._has_bootstrap = member.executable
            nar.file(member.size, executable=member.executable)
            self._folder.file(parts, pieces, current.content, executable=member.executable)
            current.note.content(self._blocks.skip_padding(member))
            nar.end_file()

    def _read_info(self, size: int, pieces: Iterator[memoryview]) -> memoryview:
        """Read the root's info.json, which must say the same as the manifest."""
        if size > MAX_MANIFEST_BYTES:
            raise BundleError(f"its info.json is above {MAX_MANIFEST_BYTES} bytes")
        text = b"".join(pieces)
        if Info.parse(text, label="its info.json").to_bytes() != self._manifest.info.to_bytes():
            raise BundleError("its manifest.json contradicts the info.json of its root")
        self._has_info = True
        return memoryview(text)

    def _runtime(self, member: Member | None) -> None:
        root = self._manifest.root
        if not self._has_info:
            raise BundleError(f"its root {root} has no info.json")
        if not self._has_bootstrap:
            raise BundleError(f"its root {root} has no executable file runtime/bootstrap.sh")
        self._lane.drain()  # what is shared is in its place before its folder is left
        target = self._manifest.runtime.encode()
        if member is None or member.kind is not Kind.SYMLINK or member.target != target:
            raise BundleError(f"its nix/runtime is not a link to {self._manifest.runtime}")
        self._folder.symlink([b"nix", b"runtime"], target)
