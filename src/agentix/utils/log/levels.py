"""Levels as people write them in the environment: ``INFO``, ``debug``, ``15``."""

from __future__ import annotations

import logging


def level_of(text: str) -> int | None:
    """Read a level; ``None`` if it is none."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 6:
        return int(text)
    return logging.getLevelNamesMapping().get(text.upper())
