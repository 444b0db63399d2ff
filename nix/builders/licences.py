"""What software says of its own licence, as names in its own words; nothing is interpreted here.

A wheel says it in its METADATA, a Debian package in the copyright file among its documentation,
an npm package in its package.json. Whoever lists a bundle's licences turns the names into SPDX's.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path

LONGEST = 120  # characters; above that it is the text of a licence, not its name
MOST = 40  # names: a C library is made of many parts
_DEBIANS_OWN = "debian/*"  # files that are in the source package only
_CLASSIFIER = "License ::"
_COMMON = re.compile(r"/usr/share/common-licenses/([A-Za-z]+(?:-[0-9]+(?:\.[0-9]+)?)?)")
# CPython's copyright file is prose, and names no licence but those of its parts.
_PYTHON = re.compile(r"PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2")


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


def of_debian(root: Path, package: str) -> list[str]:
    """Return the names in the copyright file of *package*, one of those unpacked below *root*."""
    for documentation in ("usr/share/doc", "share/doc"):
        file = root / documentation / package / "copyright"  # the folder may be a link to another's
        if file.is_file():
            return of_copyright(file.read_text("utf-8", "replace"))
    return []


class Debian:
    """The licences of Debian packages that are unpacked one after the other, and then pruned."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}
        self._shared: dict[str, str] = {}

    def add(self, part: Path, package: str) -> None:
        """Read what *package*, unpacked into *part*, says; some refer to another package."""
        self._names[package] = of_debian(part, package)
        for documentation in ("usr/share/doc", "share/doc"):
            folder = part / documentation / package
            if folder.is_symlink():
                self._shared[package] = folder.readlink().name

    def write(self, file: Path) -> None:
        """Write the names by package, as the bundle's step reads them."""
        shared = {name: self._names.get(other, []) for name, other in self._shared.items()}
        value = {name: own or shared.get(name, []) for name, own in self._names.items()}
        file.write_text(json.dumps(value, sort_keys=True) + "\n")


def of_copyright(text: str) -> list[str]:
    """Return the names in a copyright file: of its paragraphs on files, where it has such.

    A file in prose has none. Then these are the licences to whose text it refers, below
    ``common-licenses/``: that much is known of it.
    """
    if text.startswith("Format:"):
        return _names(_atoms(_declared(text)))
    if _PYTHON.search(text):
        return ["PSF-2.0"]
    return _names(f"common-licenses/{name}" for name in sorted(set(_COMMON.findall(text))))


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
