"""What software says of its own licence, as names in its own words; nothing is interpreted here.

A wheel says it in its METADATA, a Debian package in the copyright file among its documentation,
an npm package in its package.json. Whoever lists a bundle's licences turns the names into SPDX's.
"""

from __future__ import annotations

import json
import re
from email.parser import Parser
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message
    from pathlib import Path

LONGEST = 120  # characters; above that it is the text of a licence, not its name
MOST = 40  # names: a C library is made of many parts
_DEBIANS_OWN = "debian/*"  # files that are in the source package only
_CLASSIFIER = "License ::"
_COMMON = re.compile(r"/usr/share/common-licenses/([A-Za-z]+(?:-[0-9]+(?:\.[0-9]+)?)?)")
# CPython's copyright file is prose, and names no licence but those of its parts.
_PYTHON = re.compile(r"PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2")
# Licences that prose quotes, or names without referring to their text. Runs of white space are one.
_QUOTED = {
    "MIT": "Permission is hereby granted, free of charge, to any person obtaining a copy of this",
    "ISC": "Permission to use, copy, modify, and/or distribute this software for any purpose with",
    "Apache-2.0": "Apache License Version 2.0",
    "LGPL-2.1+": "GNU Lesser General Public License, version 2.1 (or, at your option, any later",
}
# gcc's packages refer to the copyright file of one that has nothing else, and that no bundle has
# (see needs.toml). It says this of their parts; the first pattern that fits a package counts.
_GCC_BASE = "gcc-[0-9]*-base"
_OF_GCC = {
    "libquadmath*": "LGPL-2.1+",
    "lib*san[0-9]*": "Apache-2.0 WITH LLVM-exception",
    "libcc1-*": "GPL-3+",
    "lib*": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "*": "GPL-3+",
}


def parse_metadata(data: bytes) -> Message:
    """Return the headers of a wheel's METADATA, all of them text whatever they hold."""
    return Parser().parsestr(data.decode("utf-8", "replace"), headersonly=True)


def of_metadata(message: Message) -> list[str]:
    """Return the names in a wheel's METADATA: an SPDX expression, a name, or classifiers.

    Many have the whole text where the name belongs; its first line is better than nothing.
    """
    text = (message.get("License") or "").strip()
    listed = sorted(c for c in message.get_all("Classifier") or () if c.startswith(_CLASSIFIER))
    for names in (
        [message.get("License-Expression") or ""],
        [] if "\n" in text or text == "UNKNOWN" else [text],
        listed,
        [text.partition("\n")[0]] if "\n" in text else [],
    ):
        if found := _names(names):
            return found
    return []


def of_npm(package: dict[str, Any]) -> list[str]:
    """Return the names in an npm package.json, also as they were written long ago."""
    found = package.get("license") or package.get("licenses") or []
    listed = found if isinstance(found, list) else [found]
    return _names(
        [str(item.get("type", "")) if isinstance(item, dict) else item for item in listed]
    )


class Debian:
    """The licences of Debian packages, read from where each was unpacked to.

    *others* are those of packages that are somewhere else, to which these may refer.
    """

    def __init__(self, others: Mapping[str, list[str]] | None = None) -> None:
        self._others = others or {}
        self._names: dict[str, list[str]] = {}
        self._refers: dict[str, str] = {}

    def add(self, root: Path, package: str) -> None:
        """Read what *package*, unpacked into *root*, says; some refer to another package."""
        self._names[package] = []
        for documentation in ("usr/share/doc", "share/doc"):
            folder = root / documentation / package
            if (file := folder / "copyright").is_file():
                self._names[package] = of_copyright(file.read_text("utf-8", "replace"))
            elif folder.is_symlink():
                self._refers[package] = folder.readlink().name

    def names(self) -> dict[str, list[str]]:
        """Return the names by package, when all have been added."""
        return {package: self._of(package) for package in sorted(self._names)}

    def write(self, file: Path) -> None:
        """Write the names by package, as the bundle's step reads them."""
        file.write_text(json.dumps(self.names(), sort_keys=True) + "\n")

    def _of(self, package: str) -> list[str]:
        seen = [package]
        while (other := self._refers.get(seen[-1])) is not None and other not in seen:
            seen.append(other)
        if seen[-1] not in self._names and fnmatchcase(seen[-1], _GCC_BASE):
            return [
                next(name for pattern, name in _OF_GCC.items() if fnmatchcase(package, pattern))
            ]
        return self._names.get(seen[-1]) or self._others.get(seen[-1], [])


def of_copyright(text: str) -> list[str]:
    """Return the names in a copyright file: of its paragraphs on files, where it has such.

    A file in prose has none. Then these are the licences to whose text it refers, below
    ``common-licenses/``, and those that it quotes: that much is known of it.
    """
    if re.search(r"^Format:", text.partition("\n\n")[0], re.MULTILINE):
        return _names(_atoms(_declared(text)))
    if _PYTHON.search(text):
        return ["PSF-2.0"]
    prose = " ".join(text.split())
    return _names(
        [
            *(f"common-licenses/{name}" for name in sorted(set(_COMMON.findall(text)))),
            *sorted(name for name, words in _QUOTED.items() if words in prose),
        ]
    )


def _declared(text: str) -> list[str]:
    """Return the short names in the paragraphs of a machine-readable copyright file."""
    found = []
    for paragraph in re.split(r"\n[ \t]*\n(?=[A-Za-z-]+:)", text):
        fields = dict(
            re.findall(r"^([A-Za-z-]+):[ \t]*(.*(?:\n[ \t]+.*)*)", paragraph, re.MULTILINE)
        )
        if "Files" in fields and fields["Files"].split() != [_DEBIANS_OWN]:
            found.append(fields.get("License", "").partition("\n")[0])
    return found


def _atoms(names: list[str]) -> list[str]:
    """Take "X and Y" apart; alternatives stay together."""
    parts: set[str] = set()
    for name in names:
        whole = " or " in f" {name} "
        parts |= {name} if whole else set(re.split(r",? and |, ", name))
    return sorted(parts)


def _names(found: Any) -> list[str]:
    """Return what is left of *found* when it is made plain: printable, short, and not too many."""
    plain = (" ".join(str(name).split()) for name in found)
    kept = [n for n in plain if n and len(n) <= LONGEST and n.isascii() and n.isprintable()]
    return list(dict.fromkeys(kept))[:MOST]
