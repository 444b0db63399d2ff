"""Ask the store what it holds, and put files into it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import NixError
from agentix.nix.installation import Nix, find
from agentix.nix.paths import STORE
from agentix.nix.program import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_BATCH = 400  # paths in one command line
_OUTPUT = re.compile(r'Derive\(\[\("out","[^"]*","[^"]*","(?P<hash>[^"]*)"\)')
_ADDING = 1800.0  # seconds; gigabytes are copied and hashed


@dataclass(frozen=True, slots=True)
class StorePath:
    """One path of the store: where it can be read, its NAR's sha256 (hexadecimal) and its size."""

    path: Path
    sha256: str
    size: int


def closure(path: Path, *, nix: Nix | None = None) -> list[StorePath]:
    """Return *path* and everything that it refers to, sorted by name."""
    nix = nix or find()
    names = run(nix, "nix-store", ["--query", "--requisites", _inside(path)]).split()
    records: list[StorePath] = []
    for batch in _batches(names):
        records += _records(nix, run(nix, "nix-store", ["--dump-db", *batch]))
    if {record.path.name for record in records} != {Path(name).name for name in names}:
        raise NixError(f"nix-store --dump-db does not describe all of {path}'s references")
    return sorted(records, key=lambda record: record.path.name)


def add_fixed(
    files: Sequence[Path], *, recursive: bool = False, nix: Nix | None = None
) -> list[Path]:
    """Put *files* into the store under their own names and return where they are, in order.

    A folder needs *recursive*. Adding what is there already changes nothing.
    """
    nix = nix or find()
    kind = ["--recursive"] if recursive else []
    added: list[Path] = []
    for batch in _batches([str(file) for file in files]):
        arguments = ["--add-fixed", *kind, "sha256", *batch]
        lines = run(nix, "nix-store", arguments, timeout=_ADDING).split()
        added += [nix.real(line) for line in lines]
    return added


def invalid(paths: Iterable[Path], *, nix: Nix | None = None) -> list[Path]:
    """Return those of *paths* that the store does not hold, by its own record."""
    nix = nix or find()
    missing: list[Path] = []
    for batch in _batches([_inside(path) for path in paths]):
        arguments = ["--check-validity", "--print-invalid", *batch]
        missing += [nix.real(line) for line in run(nix, "nix-store", arguments).split()]
    return missing


def producers(nix: Nix, derivation: str) -> list[str]:
    """Return *derivation* and all others that are built on the way to it.

    Those with a known result, which were put into the store instead, are left out.
    """
    needed = run(nix, "nix-store", ["--query", "--requisites", derivation]).split()
    derivations = [name for name in needed if name.endswith(".drv")]
    return [name for name in derivations if not _is_fixed(nix.real(name))]


def _is_fixed(derivation: Path) -> bool:
    """Say whether the text of *derivation* declares the hash of its output."""
    with derivation.open(encoding="utf-8") as file:
        head = _OUTPUT.match(file.read(1024))
    return head is not None and head["hash"] != ""


def _inside(path: Path) -> str:
    return f"{STORE}/{path.name}"


def _batches(words: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(words), _BATCH):
        yield words[start : start + _BATCH]


def _records(nix: Nix, dump: str) -> Iterator[StorePath]:
    """Read a registration dump: path, hash, size, deriver, count of references, references."""
    lines = iter(dump.splitlines())
    try:
        for path in lines:
            sha256, size, _deriver, count = (next(lines) for _ in range(4))
            for _ in range(int(count)):
                next(lines)
            yield StorePath(nix.real(path), sha256.removeprefix("sha256:"), int(size))
    except (StopIteration, RuntimeError, ValueError) as error:
        raise NixError("nix-store --dump-db printed something that is no registration") from error
