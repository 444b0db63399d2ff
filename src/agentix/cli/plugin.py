"""``agentix plugin``: what is installed beside Agentix, and whether it loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from agentix.cli.output import Format, FormatOption, print_json

if TYPE_CHECKING:
    from agentix.provider.registry import InstalledProvider


app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _plugin() -> None:
    """Show the installed plugins."""


@app.command("list")
def _list(form: FormatOption = Format.TEXT) -> None:
    """List the installed providers: their distribution, version, and whether they load."""
    from agentix.provider.registry import providers

    found = providers().installed()
    if form is Format.JSON:
        print_json([_row(each) for each in found])
        return
    if not found:
        typer.echo("no provider is installed; install one, such as agentix-provider-bubblewrap")
    for each in found:
        row = _row(each)
        origin = f"{row['distribution'] or '(this process)'} {row['version'] or ''}".strip()
        typer.echo(f"{row['kind']}  {row['name']:<14} {origin:<40} {row['error'] or 'loads'}")


def _row(each: InstalledProvider) -> dict[str, str | None]:
    from agentix.provider.registry import one_line

    return {
        "kind": "provider",
        "name": each.name,
        "distribution": each.distribution,
        "version": each.version,
        "status": "loads" if each.error is None else "broken",
        "error": None if each.error is None else one_line(each.error),
    }
