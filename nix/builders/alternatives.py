"""Programs that Debian's packages offer under a second name, by a script that a bundle never runs.

``cc`` and ``awk`` are such names: the package's postinst registers them with update-alternatives.
What it says there is read where it is plain; nothing of it is run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_PLAIN = r"(/[\w.+/-]+)"
_COMMAND = re.compile(r"update-alternatives\b[^\n;&|]*")
_MASTER = re.compile(rf"--install\s+{_PLAIN}\s+[\w.+-]+\s+{_PLAIN}\s+(\d+)")
_SLAVE = re.compile(rf"--slave\s+{_PLAIN}\s+[\w.+-]+\s+{_PLAIN}")


@dataclass(frozen=True, slots=True)
class Alternative:
    """The name ``link`` for the program ``path``; of two that want it, the higher one has it."""

    link: str
    path: str
    priority: int


def read(postinst: Path) -> list[Alternative]:
    """Return what the maintainer script *postinst*, if there is one, registers."""
    if not postinst.is_file():
        return []
    text = postinst.read_text("utf-8", "replace").replace("\\\n", " ")
    found = []
    for command in _COMMAND.findall(text):
        if master := _MASTER.search(command):
            priority = int(master[3])
            names = [(master[1], master[2]), *_SLAVE.findall(command)]
            found += [Alternative(link, path, priority) for link, path in names]
    return found


def ranked(alternatives: Iterable[Alternative]) -> list[Alternative]:
    """Return them with the one that has a name first; between equals the order decides."""
    return sorted(alternatives, key=lambda alternative: -alternative.priority)
