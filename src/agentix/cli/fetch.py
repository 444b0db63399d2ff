"""``agentix fetch``: put everything a build needs into the Nix store."""

from __future__ import annotations

from pathlib import Path

import typer

from agentix.cli.options import PlatformOption, ProjectArgument
from agentix.cli.output import Format, FormatOption, print_json


def command(
    path: ProjectArgument = Path(),
    platform: PlatformOption = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Fetch what building a project needs, so that it needs no network."""
    from agentix.build.fetch import fetch_project
    from agentix.cli.progress import terminal_progress

    with terminal_progress() as progress:
        fetched = fetch_project(path, platform=platform, progress=progress)
    if form is Format.JSON:
        print_json({"files": fetched.files, "size": fetched.size, "present": fetched.present})
    elif fetched.files:
        typer.echo(f"fetched {fetched.files} files, {fetched.size / 1e6:.1f} MB")
    else:
        typer.echo(f"nothing to fetch: all {fetched.present} files are in the Nix store")
