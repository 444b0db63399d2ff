"""What a look at this machine finds: one line, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    ``level`` is ``"problem"`` when it cannot be used as it is, ``"note"`` when it can and something
    is worth knowing. ``text`` says what was found, ``advice`` what to do, if there is anything.
    """

    level: Level
    text: str
    advice: str = ""
