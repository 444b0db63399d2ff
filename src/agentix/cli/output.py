"""How commands print for people and for scripts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """The choices of ``--format``."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]


def print_json(value: object) -> None:
    """Print *value* as one JSON document, and nothing else."""
    import json

    typer.echo(json.dumps(value, indent=2))
