"""``agentix sandbox``: which sandboxes there are, and removing what nobody owns any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentix.cli.output import Format, FormatOption, age, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from agentix.provider.listing import ListedSandbox
    from agentix.provider.owner import Owner

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _sandbox() -> None:
    """Show the sandboxes of this user, and remove leftovers."""


@app.command("list")
def _list(form: FormatOption = Format.TEXT) -> None:
    """List this user's sandboxes of every installed provider, and what is left of ended ones."""
    from agentix.provider.survey import survey

    found = asyncio.run(survey())
    if form is Format.JSON:
        print_json([_document(each) for each in found.sandboxes])
    elif found.sandboxes:
        _print_table(found.sandboxes)
    else:
        typer.echo("no sandboxes")
    _report(found.problems)


@app.command("prune")
def _prune(
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Also what still runs though its owner is gone, and what has ended and whose "
            "owner cannot be told from here.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Remove the sandboxes that have ended and whose owner, the process that made them, is gone.

    What a living process owns is never removed.
    """
    from agentix.provider.survey import clear

    done = asyncio.run(clear(running=everything, dry_run=dry_run))
    removed, failed = done.pruned.removed, done.pruned.failed
    if form is Format.JSON:
        print_json(
            {
                "dry_run": dry_run,
                "removed": [_document(each) for each in removed],
                "failed": [{**_document(each), "error": str(why)} for each, why in failed],
            }
        )
    else:
        for each in removed:
            what = "would remove" if dry_run else "removed"
            typer.echo(f"{what} {each.sandbox_id} ({_image(each)}, {each.status})")
        if not removed and not failed:
            typer.echo("nothing to remove")
    for each, why in failed:
        typer.echo(f"agentix: cannot remove {each.sandbox_id}: {why}", err=True)
    _report(done.problems)
    if failed or done.problems:
        raise typer.Exit(1)


def _report(problems: Mapping[str, str]) -> None:
    for name, reason in problems.items():
        typer.echo(f"agentix: provider {name} was left out: {reason}", err=True)


def _document(each: ListedSandbox) -> dict[str, Any]:
    return {
        "sandbox_id": each.sandbox_id,
        "provider": each.provider,
        "image": each.image,
        "status": each.status,
        "created": each.created.isoformat() if each.created else None,
        "owner": each.owner.model_dump() if each.owner else None,
        "abandoned": each.abandoned,
    }


def _print_table(found: Iterable[ListedSandbox]) -> None:
    rows = [("SANDBOX", "STATUS", "IMAGE", "CREATED", "OWNER")]
    rows += [
        (each.sandbox_id, each.status, _image(each), _age(each.created), _owner(each))
        for each in found
    ]
    print_table(rows)


def _image(each: ListedSandbox) -> str:
    from agentix.text import plain

    return plain(each.image, 48) if each.image else "?"


def _owner(each: ListedSandbox) -> str:
    if each.owner is None:
        return "gone" if each.abandoned else "?"
    return f"gone (was {_process(each.owner)})" if each.abandoned else _process(each.owner)


def _process(owner: Owner) -> str:
    import pwd

    from agentix.text import plain

    try:
        user = pwd.getpwuid(owner.user).pw_name
    except (KeyError, OverflowError):
        user = str(owner.user)
    return plain(f"{user}@{owner.host} pid {owner.pid}", 64)


def _age(created: datetime | None) -> str:
    from datetime import UTC, datetime

    return age((datetime.now(UTC) - created).total_seconds()) if created else "?"
