"""What the last build was made from: while nothing of it changes, its bundle stands as it is.

Looked at before anything else of a build, so this module imports nothing that is slow.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentix.build.built import BuiltBundle
from agentix.build.expressions import expressions
from agentix.build.sources import source_files
from agentix.folders import cache_root
from agentix.replacing import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.build.request import Request

_FORMAT = 1
_CODE = ("build", "bundle", "nix")  # the packages that decide what a build gives
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Inputs:
    """Where everything lies that decides what a build gives.

    ``trees`` are source folders, each with the folders below it that belong to other projects;
    ``files`` are those outside of them: the lock, and what decides whether the lock is current.
    ``output``, the tar itself, is none of them, wherever it lies.
    """

    trees: tuple[tuple[str, tuple[str, ...]], ...]
    files: tuple[str, ...]
    output: str

    def digest(self) -> str:
        """Return a hash of all of it, and of the programs and expressions that build from it."""
        total = hashlib.sha256(f"{_FORMAT}\n".encode())
        for line in _code():
            total.update(line.encode("utf-8", "surrogateescape"))
        for file in self.files:
            total.update(f"\n{file}\0".encode("utf-8", "surrogateescape") + _content(Path(file)))
        for root, without in self.trees:
            total.update(f"\n{root}\n".encode("utf-8", "surrogateescape"))
            for name in source_files(Path(root), without=[Path(path) for path in without]):
                if f"{root}/{name}" != self.output:
                    total.update(f"{name}\0".encode() + _content(Path(root, name)))
        return total.hexdigest()


def recall(request: Request) -> BuiltBundle | None:
    """Return the bundle that *request* gave before, if it still stands and would be the same."""
    if request.nixpkgs is not None:
        return None  # who names a folder may be at work on it
    try:
        record = json.loads(_file(request).read_bytes())
        inputs = Inputs(
            tuple((root, tuple(without)) for root, without in record["trees"]),
            tuple(record["files"]),
            record["bundle"]["path"],
        )
        bundle = record["bundle"]
        path, store_path = Path(bundle["path"]), Path(bundle["store_path"])
        if _stamp(path) != record["stamp"] or not store_path.is_dir():
            return None
        if inputs.digest() != record["digest"]:
            return None
        return BuiltBundle(**bundle | {"path": path, "store_path": store_path, "cached": True})
    except (OSError, ValueError, KeyError, TypeError):
        return None  # no record, or one that is not ours to understand


def remember(request: Request, inputs: Inputs, digest: str, bundle: BuiltBundle) -> None:
    """Note that *inputs*, when they had this *digest*, gave *bundle* for *request*.

    Says nothing where the cache cannot be written, or the bundle is gone again: the next build only
    takes longer.
    """
    described: dict[str, Any] = asdict(bundle) | {
        "path": str(bundle.path),
        "store_path": str(bundle.store_path),
        "cached": True,
        "timings": {},
    }
    record: dict[str, Any] = {
        "trees": inputs.trees,
        "files": inputs.files,
        "digest": digest,
        "bundle": described,
    }
    file = _file(request)
    with suppress(OSError, UnicodeEncodeError):
        record["stamp"] = _stamp(bundle.path)
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as draft:
            draft.write_text(json.dumps(record), encoding="utf-8")


def _file(request: Request) -> Path:
    """Return where the record of *request* is kept."""
    key = hashlib.sha256(json.dumps(asdict(request)).encode()).hexdigest()
    return cache_root() / "builds" / f"{key}.json"


def _stamp(file: Path) -> list[int]:
    """Return what changes whenever *file* is written to or replaced."""
    status = file.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _code() -> Iterator[str]:
    """Yield a line for each file of ours that takes part in a build."""
    package = Path(__file__).parents[1]
    for folder in (*(package / name for name in _CODE), expressions()):
        for parent, folders, files in os.walk(folder):
            folders[:] = sorted(set(folders) - {"__pycache__", "tests"})
            for name in sorted(files):
                status = Path(parent, name).stat()
                yield f"{parent}/{name} {status.st_size} {status.st_mtime_ns}\n"


def _content(path: Path) -> bytes:
    """Return what is at *path*: its kind, and a hash of its content."""
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return b"link" + hashlib.sha256(os.fsencode(path.readlink())).digest()
        if not stat.S_ISREG(status.st_mode):
            return b"none"
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        kind = b"tool" if status.st_mode & stat.S_IXUSR else b"file"
        return kind + digest.digest()
    except FileNotFoundError:
        return b"none"
