"""What Debian packages need beyond what they say of themselves: the table in needs.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Text:
    """A text in the program ``file`` that is to become the absolute path ``means``."""

    file: str
    text: str
    means: str


@dataclass(frozen=True, slots=True)
class Needs:
    """The part of the table that says how an unpacked package becomes a tool."""

    dropped: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict)
    texts: tuple[Text, ...] = ()
    untouched: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    arguments: dict[str, list[str]] = field(default_factory=dict)

    def drops(self, path: str) -> bool:
        """Say whether the file *path*, relative to the packages' root, is left out."""
        return any(fnmatchcase(path, pattern) for pattern in self.dropped)

    def admits(self, path: str) -> bool:
        """Say whether the absolute *path*, where a program names it, may be one of ours."""
        return _lies_in(path, self.taken) or not _lies_in(path, self.untouched)


def _lies_in(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def load() -> Needs:
    """Return what the table says to builders."""
    table = tomllib.loads(Path(__file__).with_name("needs.toml").read_text("utf-8"))

    def entries(kind: str, key: str) -> tuple[str, ...]:
        return tuple(value for entry in table.get(kind, ()) for value in entry[key])

    def each(kind: str) -> list[dict[str, Any]]:
        return list(table.get(kind, ()))

    return Needs(
        dropped=entries("files", "drops"),
        links={entry["at"]: entry["to"] for entry in each("link")},
        texts=tuple(Text(e["file"], e["text"], e["means"]) for e in each("text")),
        untouched=entries("untouched", "paths"),
        taken=entries("taken", "paths"),
        arguments={name: e["arguments"] for e in each("arguments") for name in e["programs"]},
    )
