"""``agentix build``: from a project to its bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentix.cli.options import (
    Compression,
    CompressOption,
    PlatformOption,
    ProjectArgument,
    PythonOption,
)
from agentix.cli.output import Format, FormatOption, print_json

if TYPE_CHECKING:
    from agentix.build.built import BuiltBundle
    from agentix.build.forecast import Forecast


def command(
    path: ProjectArgument = Path(),
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .tar(.zst) file or a folder; dist by default."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Call the bundle so.")] = None,
    platform: PlatformOption = None,
    python: PythonOption = None,
    offline: Annotated[bool, typer.Option("--offline", help="Never use the network.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Build twice and compare every byte.")
    ] = False,
    compress: CompressOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Build the bundle of a project, locking and fetching what is missing."""
    packed = None if compress is None else compress is Compression.ZSTD
    if dry_run:
        from agentix.build.forecast import forecast

        plan = forecast(
            path, output=output, name=name, platform=platform, python=python, compress=packed
        )
        _print_forecast(plan, form)
        return
    from agentix.build.build import build_bundle
    from agentix.cli.progress import terminal_progress

    with terminal_progress() as progress:
        bundle = build_bundle(
            path,
            output=output,
            name=name,
            platform=platform,
            python=python,
            offline=offline,
            check=check,
            compress=packed,
            progress=progress,
        )
    if form is Format.JSON:
        print_json(_described(bundle))
    else:
        what = "unchanged" if bundle.cached else f"{bundle.size / 1e6:.1f} MB"
        typer.echo(f"{bundle.name} {bundle.version} for {bundle.platform}, {what}", err=True)
        typer.echo(f"{bundle.path}\nsha256:{bundle.sha256}")


def _described(bundle: BuiltBundle) -> dict[str, object]:
    return {
        "bundle": str(bundle.path),
        "digest": f"sha256:{bundle.sha256}",
        "size": bundle.size,
        "name": bundle.name,
        "version": bundle.version,
        "platform": bundle.platform,
        "store_path": str(bundle.store_path),
        "cached": bundle.cached,
        "timings": dict(bundle.timings),
    }


def _print_forecast(plan: Forecast, form: Format) -> None:
    from dataclasses import asdict

    if form is Format.JSON:
        print_json(asdict(plan) | {"output": str(plan.output) if plan.output else None})
        return
    for line in plan.lines():
        typer.echo(line)
