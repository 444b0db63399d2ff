"""How commands print for people and for scripts."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """The choices of ``--format``."""

    TEXT = "text"
    JSON = "json"


def print_json(value: object) -> None:
    """Print *value* as one JSON document, and nothing else."""
    import json

    import typer

    typer.echo(json.dumps(value, indent=2))
