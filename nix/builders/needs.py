"""What Debian packages need beyond what they say of themselves: the table in needs.toml."""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Text:
    """A text in files that match ``file``, which is to become the absolute path ``means``."""

    file: str
    text: str
    means: str


@dataclass(frozen=True, slots=True)
class Data:
    """The file ``at`` with ``text``, and ``libraries`` of the toolchain that are to be edited.

    All that only where there is a file that matches ``beside``.
    """

    beside: str
    at: str
    text: str
    libraries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """How ``programs`` are started, in images that do not have the path ``unless``.

    ``arguments`` go before the user's; ``variables`` are set where the image does not set them.
    """

    programs: tuple[str, ...]
    unless: str | None = None
    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)

    def lines(self, **places: str) -> list[str]:
        """Return it as lines of a shell script, whose ``$@`` becomes what it says."""
        lines = [
            f'export {name}="${{{name}-{value.format(**places)}}}"'
            for name, value in self.variables.items()
        ]
        if self.arguments:
            words = shlex.join(argument.format(**places) for argument in self.arguments)
            lines.append(f'set -- {words} "$@"')
        if self.unless is None:
            return lines
        return [f"[ -e {shlex.quote(self.unless)} ] || {{", *lines, "}"]


@dataclass(frozen=True, slots=True)
class Needs:
    """The part of the table that says how an unpacked package becomes a tool."""

    dropped: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict)
    texts: tuple[Text, ...] = ()
    data: tuple[Data, ...] = ()
    untouched: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    launches: tuple[Launch, ...] = ()

    def drops(self, path: str) -> bool:
        """Say whether the file *path*, relative to the packages' root, is left out."""
        return any(fnmatchcase(path, pattern) for pattern in self.dropped)

    def admits(self, path: str) -> bool:
        """Say whether the absolute *path*, where a program names it, may be one of ours."""
        return _lies_in(path, self.taken) or not _lies_in(path, self.untouched)

    def launch(self, program: str, **places: str) -> list[str]:
        """Return what a script has to do before it starts *program*, as lines of it."""
        chosen = (entry for entry in self.launches if program in entry.programs)
        return [line for entry in chosen for line in entry.lines(**places)]


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
        data=tuple(
            Data(e["beside"], e["at"], e["text"], tuple(e["libraries"])) for e in each("data")
        ),
        untouched=entries("untouched", "paths"),
        taken=entries("taken", "paths"),
        launches=tuple(
            Launch(
                tuple(entry["programs"]),
                entry.get("unless"),
                tuple(entry.get("arguments", ())),
                entry.get("variables", {}),
            )
            for entry in each("launch")
        ),
    )
