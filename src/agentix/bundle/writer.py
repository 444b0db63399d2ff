"""Store paths become one tar: the same bytes on every machine, each path checked on its way."""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from agentix.bundle import archive
from agentix.bundle.archive import Member
from agentix.bundle.compression import Compressor
from agentix.bundle.folder import write_all
from agentix.bundle.frame import beginning, ending
from agentix.bundle.lane import Lane
from agentix.bundle.manifest import Info, Manifest, StoreObject
from agentix.bundle.nar import Nar
from agentix.bundle.staging import PATIENCE, acquire
from agentix.bundle.tree import CHUNK, Kind, contents, walk
from agentix.errors import BundleError
from agentix.progress import SILENT
from agentix.replacing import draft_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence
    from pathlib import Path
    from typing import Any, Self

    from agentix.nix import StorePath
    from agentix.progress import Progress, Step

    Compare = Callable[[StorePath, hashlib._Hash, int], object]


@dataclass(frozen=True, slots=True)
class WrittenBundle:
    """A bundle's file; ``sha256`` (hex) is that of the tar in it, ``size`` the file's."""

    path: Path
    sha256: str
    size: int

    @property
    def ref(self) -> str:
        """How the cache calls this bundle."""
        return f"sha256-{self.sha256}"


def describe(root: Path, closure: Sequence[StorePath]) -> Manifest:
    """Return the manifest of the bundle whose root is the store path *root*.

    Raises BundleError when *root* is not the result of a bundle build.
    """
    path = root / "info.json"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BundleError(
            f"{root} is not a built bundle: cannot read {path}: {error.strerror}"
        ) from error
    info = Info.parse(data, label=str(path))
    objects = {
        entry.path.name: StoreObject(sha256=entry.sha256, size=entry.size) for entry in closure
    }
    return Manifest.of(info, objects, root.name)


def write_bundle(
    root: Path,
    closure: Sequence[StorePath],
    destination: Path,
    progress: Progress = SILENT,
    *,
    compress: bool = False,
) -> WrittenBundle:
    """Write the bundle of *root* and its *closure* to the file *destination*, atomically.

    With *compress* it is compressed with zstd, and still the same bundle.
    Same content, same bytes: nothing of the file system but names, contents, executable bits and
    link targets goes in. A failure leaves *destination* as it was and nothing beside it. The file
    is not forced to disk: a deploy verifies every byte, and a build can be repeated.

    Raises BundleError, also when a store path is not what Nix recorded in *closure*.
    """
    manifest = describe(root, closure)
    total = sum(entry.size for entry in closure)
    with (
        replacing_whole(destination) as file,
        progress.step("write", total=total, unit="bytes") as step,
    ):
        digest, size = _write(manifest, closure, file, step, compress)
        step.outcome(f"{destination.name}, {size / 1e6:.1f} MB")
    return WrittenBundle(destination, digest, size)


def sweep(destination: Path) -> None:
    """Remove what a killed writer left beside *destination*; what another is writing stays."""
    draft = draft_of(destination)
    with suppress(OSError):
        file = acquire(draft, 0)
        if file is not None:
            draft.unlink()
            os.close(file)


@contextmanager
def replacing_whole(destination: Path) -> Iterator[int]:
    """Give an empty file that becomes *destination* if all goes well, and vanishes otherwise.

    It has one name, and a lock: what a killed process left behind is used again, not added to.
    """
    temporary = draft_of(destination)
    try:
        file = acquire(temporary, PATIENCE, 0o666)
        if file is None:
            raise BundleError(
                f"cannot write {destination}: another process has been writing it for"
                f" {PATIENCE:.0f} s; see who holds {temporary}"
            )
        try:
            os.ftruncate(file, 0)
            yield file
            temporary.replace(destination)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        finally:
            os.close(file)
    except OSError as error:
        raise BundleError(f"cannot write {destination}: {error.strerror or error}") from error


def _write(
    manifest: Manifest, closure: Sequence[StorePath], file: int, step: Step, compress: bool
) -> tuple[str, int]:
    sha256 = hashlib.sha256()
    with Lane("bundle-digest") as digests, _Packed(file, compress) as packed:

        def write(data: bytes) -> None:
            digests.do(partial(sha256.update, data))
            packed.write(data)

        stream(manifest, closure, write, step)
        size = packed.finish()
    return sha256.hexdigest(), size


class _Packed:
    """The open *file*, compressed on a thread of its own if it is to be."""

    def __init__(self, file: int, compress: bool) -> None:
        self._file = file
        self._size = 0
        self._compressor = Compressor() if compress else None
        self._lane = Lane("bundle-compress")

    def __enter__(self) -> Self:
        if self._compressor is not None:
            self._lane.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._compressor is not None:
            self._lane.__exit__(*error)

    def write(self, data: bytes) -> None:
        if self._compressor is None:
            self._put(data)
        else:
            compress = self._compressor.compress
            self._lane.do(lambda: self._put(compress(data)))

    def finish(self) -> int:
        """Write what is left, and return the size of the file."""
        if self._compressor is not None:
            self._lane.drain()
            self._put(self._compressor.finish())
        return self._size

    def _put(self, data: bytes) -> None:
        self._size += len(data)
        write_all(self._file, data)


def stream(
    manifest: Manifest,
    closure: Sequence[StorePath],
    write: Callable[[bytes], object],
    step: Step,
    known: Container[str] = (),
) -> None:
    """Hand the bytes of the bundle's tar to *write*, in chunks.

    The store paths called as in *known* are not compared with what Nix recorded: whoever reads the
    tar has them, and compares with those.
    """
    out = Chunks(write)
    out.add(beginning(manifest))
    with Lane("bundle-nar") as lane:
        for entry in sorted(closure, key=lambda entry: entry.path.name):
            add_store_path(entry, out, lane, None if entry.path.name in known else _compare)
            step.advance(entry.size)
    out.add(ending(manifest))
    out.flush()


def add_store_path(entry: StorePath, out: Chunks, lane: Lane, compare: Compare | None) -> None:
    """Write the members of *entry*; *compare* is told, on the *lane*, which NAR hash it has."""
    digest = hashlib.sha256()
    nar = Nar(lambda data: lane.do(partial(digest.update, data)))
    top = (b"nix/store/" + os.fsencode(entry.path.name),)
    for node in walk(entry.path):
        path = b"/".join(top + node.parts)
        member = Member(path, node.kind, node.size, node.executable, node.target)
        archive.check(member)
        out.add(member.header())
        if compare is not None:
            nar.add(node, out.add)
        elif node.kind is Kind.FILE:
            for piece in contents(node):
                out.add(piece)
        out.add(bytes(archive.padding(node.size)))
    if compare is not None:
        lane.do(partial(compare, entry, digest, nar.finish()))


def _compare(entry: StorePath, digest: hashlib._Hash, size: int) -> None:
    if size != entry.size or digest.hexdigest() != entry.sha256:
        raise BundleError(
            f"{entry.path} is not what Nix recorded: it was modified on disk;"
            f" repair it with: nix-store --repair-path {entry.path}"
        )


class Chunks:
    """Joins the many small pieces of a tar into few large writes."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        """Write *data*, now or later."""
        if len(data) >= CHUNK // 4:
            self.flush()
            self._write(data)
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write what has not been written yet."""
        if self._pieces:
            self._write(b"".join(self._pieces))
            self._pieces.clear()
            self._size = 0
