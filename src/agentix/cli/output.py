"""How commands print for people and for scripts."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


class Format(StrEnum):
    """The choices of ``--format``."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]


def print_json(value: object) -> None:
    """Print *value* as one JSON document, and nothing else."""
    import json

    typer.echo(json.dumps(value, indent=2))


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print *rows*, the first of which are the titles, with their columns below one another."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def age(seconds: float) -> str:
    """Return how long ago *seconds* are, in the largest unit that fits."""
    for size, unit in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "now"


def amount(size: int) -> str:
    """Return *size* (bytes) in MB or GB."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
