"""What several commands are told in the same words."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

ProjectArgument = Annotated[Path, typer.Argument(help="The project's folder.")]
PlatformOption = Annotated[
    str | None, typer.Option(help="linux/amd64 or linux/arm64; this machine's by default.")
]
PythonOption = Annotated[str | None, typer.Option(help="A minor version, such as 3.13.")]


class Compression(StrEnum):
    """How a tar is kept or sent; its digest does not change with it."""

    NONE = "none"
    ZSTD = "zstd"


CompressOption = Annotated[
    Compression | None, typer.Option("--compress", help="Compress the tar; not by default.")
]
