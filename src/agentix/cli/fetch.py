"""``agentix fetch``: put everything a build needs into the Nix store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentix.cli.output import Format, print_json


def command(
    path: Annotated[Path, typer.Argument(help="The project's folder.")] = Path(),
    platform: Annotated[
        str | None, typer.Option(help="linux/amd64 or linux/arm64.  [default: this machine's]")
    ] = None,
    format: Annotated[Format, typer.Option(help="How to print the result.")] = Format.TEXT,  # noqa: A002 - it is the option's name
) -> None:
    """Fetch what building a project needs, so that it can be built without a network."""
    from agentix.build.fetch import fetch_project
    from agentix.cli.progress import terminal_progress

    with terminal_progress() as progress:
        fetched = fetch_project(path, platform=platform, progress=progress)
    if format is Format.JSON:
        print_json({"files": fetched.files, "size": fetched.size, "present": fetched.present})
    elif fetched.files:
        typer.echo(f"fetched {fetched.files} files, {fetched.size / 1e6:.1f} MB")
    else:
        typer.echo(f"nothing to fetch: all {fetched.present} files are in the Nix store")
