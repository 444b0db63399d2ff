"""A bundle looked into where it is: a tar, a deployed bundle, or a result of ``nix build``.

Nothing is unpacked. Of a tar only the headers are read at first; what is asked for later is found
again by its place in the file, so that two bundles can be read side by side, path by path.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentix.bundle import archive, reader, writer
from agentix.bundle.cache import BundleCache
from agentix.bundle.compression import is_compressed, tar_chunks
from agentix.bundle.entry import parse_ref
from agentix.bundle.locate import locate, opened
from agentix.bundle.room import check_room
from agentix.bundle.tree import CHUNK, Kind, contents, walk
from agentix.errors import BundleError
from agentix.progress import SILENT
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import IO

    from agentix.bundle.archive import Member
    from agentix.bundle.manifest import Manifest
    from agentix.nix import StorePath

_BIN = (b"runtime", b"bin")


@dataclass(frozen=True, slots=True)
class Item:
    """One file, folder or link below a store path, and how to read it if it is a file."""

    parts: tuple[bytes, ...]
    kind: Kind
    size: int = 0
    executable: bool = False
    target: bytes = b""
    read: Callable[[], Iterator[bytes]] = lambda: iter(())


class View(Protocol):
    """A bundle that can be looked into; ``size`` is that of its tar, if it is one, in bytes."""

    manifest: Manifest
    size: int | None

    def items(self, store_name: str) -> Iterator[Item]:
        """Yield everything in a store path, in the one order that archives have."""

    def digest(self) -> str:
        """Return the SHA-256 (hex) of the bundle's tar, reading all of it where it is not known."""


def programs(view: View) -> list[str]:
    """Return the names of the programs that a bundle offers: its tools, and the project's own."""
    return [
        plain(item.parts[2])
        for item in view.items(view.manifest.root)
        if item.parts[:2] == _BIN and len(item.parts) == 3
    ]


def tree_items(root: Path) -> Iterator[Item]:
    """Yield everything at and below *root*, a path on disk."""
    for node in walk(root):
        read = partial(contents, node)
        yield Item(node.parts, node.kind, node.size, node.executable, node.target, read)


@contextmanager
def look_into(ref: str | Path) -> Iterator[View]:
    """Open the bundle that *ref* names, as a cache's ``open`` does, but unpack nothing.

    Raises BundleError when it is no bundle, or cannot be read.
    """
    deployed = parse_ref(str(ref)) is not None
    path, what = (Path(ref), "deployed") if deployed else locate(ref)
    if what == "deployed":
        entry = BundleCache().open(ref if deployed else path)
        yield _Unpacked(entry.manifest, _below(entry.nix / "store"), lambda: entry.digest)
    elif what == "built":
        from agentix.nix import closure

        found = closure(path)
        manifest = writer.describe(path, found)
        where = {entry.path.name: entry.path for entry in found}
        yield _Unpacked(manifest, where.__getitem__, partial(_written, manifest, found))
    else:
        with _tar(path) as file:
            yield _Tar(file, str(path))


def _below(folder: Path) -> Callable[[str], Path]:
    return lambda name: folder / name


def _written(manifest: Manifest, closure: list[StorePath]) -> str:
    """Return the digest of the tar that would be written."""
    digest = hashlib.sha256()
    with SILENT.step("digest") as step:
        writer.stream(manifest, closure, digest.update, step)
    return digest.hexdigest()


class _Unpacked:
    """A bundle whose store paths are folders."""

    size: int | None = None

    def __init__(
        self, manifest: Manifest, path: Callable[[str], Path], digest: Callable[[], str]
    ) -> None:
        self.manifest = manifest
        self._digest = digest
        self._path = path

    def items(self, store_name: str) -> Iterator[Item]:
        return tree_items(self._path(store_name))

    def digest(self) -> str:
        return self._digest()


@contextmanager
def _tar(path: Path) -> Iterator[IO[bytes]]:
    """Open the tar *path* for reading at any place; of a compressed one, a copy that is not."""
    with opened(path) as file:
        if not is_compressed(file):
            with os.fdopen(os.dup(file), "rb") as same:
                yield same
            return
        with tempfile.TemporaryFile() as copy:
            _decompress(file, copy, path)
            yield copy


def _decompress(file: int, copy: IO[bytes], path: Path) -> None:
    """Fill *copy*, with no more than the bundle in *file* says that it is."""

    def kept() -> Iterator[bytes]:
        for piece in tar_chunks(file):
            copy.write(piece)
            yield piece

    try:
        manifest = reader.read_manifest(tar_chunks(file))
        size = sum(content.size for content in manifest.closure.values())
        check_room(Path(tempfile.gettempdir()), size)
        reader.read_bundle(kept(), None)
        copy.flush()
    except BundleError as error:
        raise BundleError(f"cannot read {path}: {error}") from error
    except OSError as error:
        raise BundleError(
            f"cannot decompress {path} into {tempfile.gettempdir()}: {error.strerror or error};"
            " set TMPDIR to a folder with room for it"
        ) from error


class _Tar:
    """A bundle in a file: every header has been read, and every store path's place is known."""

    def __init__(self, file: IO[bytes], label: str) -> None:
        self._file = file
        self._label = label
        try:
            file.seek(0)
            self.manifest = reader.read_manifest(iter(partial(file.read, CHUNK), b""))
            self._places = self._find()
        except BundleError as error:
            raise BundleError(f"cannot read {label}: {error}") from error
        self.size: int | None = os.fstat(file.fileno()).st_size

    def items(self, store_name: str) -> Iterator[Item]:
        position = self._places[store_name]
        top = (b"nix", b"store", store_name.encode())
        last: tuple[bytes, ...] | None = None
        while True:
            member, position = self._member(position)
            parts = tuple(member.path.split(b"/")) if member is not None else ()
            if member is None or parts[:3] != top:
                return
            below = parts[3:]
            if last is not None and below <= last:
                raise BundleError(f"{self._label}: member {plain(member.path)!r} is out of order")
            last = below
            read = partial(self._read, position, member.size)
            yield Item(below, member.kind, member.size, member.executable, member.target, read)
            position += member.size + archive.padding(member.size)

    def digest(self) -> str:
        self._file.seek(0)
        digest = hashlib.sha256()
        while piece := self._file.read(CHUNK):
            digest.update(piece)
        return digest.hexdigest()

    def _find(self) -> Mapping[str, int]:
        """Return where each store path begins, all of which the manifest declares."""
        places: dict[str, int] = {}
        position = 0
        while True:
            start = position
            member, position = self._member(start)
            if member is None:
                break
            parts = member.path.split(b"/")
            if parts[:2] == [b"nix", b"store"] and len(parts) == 3:
                places[plain(parts[2], None)] = start
            position += member.size + archive.padding(member.size)
        missing = sorted(self.manifest.closure.keys() - places.keys())
        if missing:
            raise BundleError(f"store path {missing[0]} is declared but missing")
        return places

    def _member(self, position: int) -> tuple[Member | None, int]:
        """Return the member whose header is at *position*, and where its content begins."""
        self._file.seek(position)
        block = self._take(archive.BLOCK)
        size = archive.extended_size(block)
        if size is not None:
            extended = block + self._take(size + archive.padding(size))
            return archive.parse(extended, self._take(archive.BLOCK)), self._file.tell()
        member = archive.parse(b"", block) if any(block) else None
        return member, position + archive.BLOCK

    def _take(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise BundleError(f"{self._label} is truncated")
        return data

    def _read(self, position: int, size: int) -> Iterator[bytes]:
        while size:
            self._file.seek(position)
            piece = self._take(min(size, CHUNK))
            position, size = position + len(piece), size - len(piece)
            yield piece
