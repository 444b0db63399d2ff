"""``agentix build``: from a project to its bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentix.cli.output import Format, print_json

if TYPE_CHECKING:
    from agentix.build.built import BuiltBundle


def command(
    path: Annotated[Path, typer.Argument(help="The project's folder.")] = Path(),
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="A .tar file or a folder.  [default: dist in the project]"
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Call the bundle so.")] = None,
    platform: Annotated[
        str | None, typer.Option(help="linux/amd64 or linux/arm64.  [default: this machine's]")
    ] = None,
    python: Annotated[str | None, typer.Option(help="A minor version, such as 3.13.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Never use the network.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Build everything twice and compare every byte.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    format: Annotated[Format, typer.Option(help="How to print the result.")] = Format.TEXT,  # noqa: A002 - it is the option's name
) -> None:
    """Build the bundle of a Python project, locking and fetching what is missing."""
    from agentix.build.build import build_bundle

    if dry_run:
        _show_plan(path, output, name, platform, python, format)
        return
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
            progress=progress,
        )
    if format is Format.JSON:
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


def _show_plan(
    path: Path,
    output: Path | None,
    name: str | None,
    platform: str | None,
    python: str | None,
    format: Format,  # noqa: A002 - it is the option's name
) -> None:
    from dataclasses import asdict

    from agentix.build.forecast import forecast

    plan = forecast(path, output=output, name=name, platform=platform, python=python)
    if format is Format.JSON:
        print_json(asdict(plan) | {"output": str(plan.output) if plan.output else None})
        return
    for line in plan.lines():
        typer.echo(line)
