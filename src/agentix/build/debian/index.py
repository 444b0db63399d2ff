"""The index of one suite and architecture: as the archive has it, and as a fast copy on disk."""

from __future__ import annotations

import contextlib
import lzma
import re
import sqlite3
from typing import TYPE_CHECKING

from agentix.build.debian.packages import Package, compare_versions
from agentix.replacing import replacing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

INDEX_FORMAT = 1


class SuiteIndex:
    """The copy on disk: opened in no time, asked by name."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)

    def __enter__(self) -> SuiteIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def package(self, name: str) -> Package | None:
        """Return the newest package called *name*."""
        row = self._connection.execute("SELECT * FROM package WHERE name = ?", (name,)).fetchone()
        return Package(*row) if row else None

    def providers(self, name: str) -> Sequence[Package]:
        """Return the packages that provide the virtual package *name*, in alphabetical order."""
        rows = self._connection.execute(
            "SELECT package.* FROM package JOIN provides ON package.name = provides.provider"
            " WHERE provides.name = ? ORDER BY package.name",
            (name,),
        )
        return [Package(*row) for row in rows]

    def names(self) -> Collection[str]:
        """Return every package's name."""
        return [name for (name,) in self._connection.execute("SELECT name FROM package")]


def write_index(compressed: bytes, file: Path) -> None:
    """Write the index in *compressed* to the database *file*, which appears complete or not."""
    newest: dict[str, Package] = {}
    for package in _stanzas(lzma.decompress(compressed).decode("utf-8")):
        known = newest.get(package.name)
        if known is None or compare_versions(package.version, known.version) > 0:
            newest[package.name] = package
    provides = [
        (clause.split(None, 1)[0].split(":")[0], package.name)
        for package in newest.values()
        for clause in package.provides.split(",")
        if clause.strip()
    ]
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.executescript(
            "CREATE TABLE package (name TEXT PRIMARY KEY, version TEXT, depends TEXT,"
            " provides TEXT, pool TEXT, sha256 TEXT, size INTEGER) WITHOUT ROWID;"
            "CREATE TABLE provides (name TEXT, provider TEXT);"
            "CREATE INDEX by_name ON provides (name);"
        )
        rows = (
            (p.name, p.version, p.depends, p.provides, p.pool, p.sha256, p.size)
            for p in newest.values()
        )
        database.executemany("INSERT INTO package VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        database.executemany("INSERT INTO provides VALUES (?, ?)", provides)
        database.commit()
        with replacing(file) as draft:
            draft.write_bytes(database.serialize())


def _stanzas(text: str) -> Iterator[Package]:
    field = re.compile(
        r"^(Package|Version|Depends|Pre-Depends|Provides|Filename|SHA256|Size): (.*)$", re.M
    )
    for stanza in text.split("\n\n"):
        fields = dict(field.findall(stanza))
        if fields:
            depends = (fields.get("Pre-Depends", ""), fields.get("Depends", ""))
            yield Package(
                name=fields["Package"],
                version=fields["Version"],
                depends=", ".join(filter(None, depends)),
                provides=fields.get("Provides", ""),
                pool=fields["Filename"],
                sha256=fields["SHA256"],
                size=int(fields["Size"]),
            )
