"""``agentix cache``: what the bundle cache holds, whether it is intact, and making room in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentix.cli.output import Format, FormatOption, age, amount, print_json, print_table

if TYPE_CHECKING:
    from agentix.bundle.usage import Deployed, Usage
    from agentix.bundle.verifying import Checked

_AGE = "30d"

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _cache() -> None:
    """Show the bundles that are deployed here, verify them, remove those that nobody uses."""


@app.command("list")
def _list(form: FormatOption = Format.TEXT) -> None:
    """List the deployed bundles: their size, and how much of it no other bundle has."""
    from agentix.bundle.notes import notes_size
    from agentix.bundle.usage import survey
    from agentix.folders import cache_root

    usage, notes = survey(cache_root()), notes_size(cache_root())
    if form is Format.JSON:
        print_json(
            {
                "cache": str(cache_root()),
                "size": usage.size,
                "unused": sum(usage.loose.values()),
                "notes": notes,
                "bundles": [_document(each, usage) for each in usage.bundles],
            }
        )
        return
    if usage.bundles:
        rows = [("BUNDLE", "NAME", "PLATFORM", "SIZE", "OWN", "USED")]
        print_table([*rows, *(_row(each, usage) for each in usage.bundles)])
    noted = f", and notes of builds and pushes, {amount(notes)}," if notes else ""
    typer.echo(
        f"{_several(len(usage.bundles))}, {amount(usage.size)}{noted} in {cache_root()}", err=True
    )


@app.command("verify")
def _verify(
    bundles: Annotated[
        list[str] | None, typer.Argument(help="sha256-…, as `list` shows them.  [default: all]")
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove what is damaged, unless it is in use.")
    ] = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Read every byte of the deployed bundles again and say what differs. Exits with 1 then."""
    from agentix.bundle.collecting import discard
    from agentix.bundle.verifying import check_cache
    from agentix.cli.progress import terminal_progress
    from agentix.folders import cache_root

    with terminal_progress() as progress:
        found = check_cache(cache_root(), bundles or (), progress)
    damaged = [each for each in found if each.differences]
    stayed = {each.path for each in damaged}
    if remove and damaged:
        stayed = set(discard(cache_root(), [each.path for each in damaged]))
    if form is Format.JSON:
        print_json([_checked(each, each.path not in stayed) for each in found])
    else:
        for each in damaged:
            _tell(each, remove=remove, stayed=each.path in stayed)
    if damaged:
        raise typer.Exit(1)


@app.command("gc")
def _gc(
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Remove what was not used for so long: 12h, 30d, 4w.")
    ] = _AGE,
    max_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Then the longest unused, until this much is left: 500m, 20g."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Remove everything that is not in use.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Remove bundles that nobody uses, what interrupted deploys have left, and old notes.

    A bundle is in use as long as a sandbox runs from it, and stays then, whatever its age.
    Notes of builds and pushes only save time: a build looks anew, a push asks the registry.
    """
    from agentix.bundle.collecting import collect
    from agentix.bundle.usage import survey
    from agentix.folders import cache_root

    if everything and older_than != _AGE:
        raise typer.BadParameter("--all is any age, so it does not go with --older-than")
    seconds = 0.0 if everything else _seconds(older_than)
    limit = None if max_size is None else _bytes(max_size)
    before = survey(cache_root())
    done = collect(cache_root(), older_than=seconds, max_size=limit, dry_run=dry_run)
    if form is Format.JSON:
        print_json(
            {
                "dry_run": dry_run,
                "removed": [_document(each, before) for each in done.removed],
                "in_use": [_document(each, before) for each in done.kept],
                "freed": done.freed,
                "size": done.left,
            }
        )
        return
    for each in done.removed:
        typer.echo(f"{'would remove' if dry_run else 'removed'} {each.ref} ({_name(each)})")
    for each in done.kept:
        typer.echo(f"in use, so it stays: {each.ref} ({_name(each)})")
    verb = "would free" if dry_run else "freed"
    typer.echo(f"{verb} {amount(done.freed)}; {amount(done.left)} left in {cache_root()}", err=True)


def _tell(each: Checked, *, remove: bool, stayed: bool) -> None:
    name = each.path.name + (f" ({each.title})" if each.title else "")
    for difference in each.differences:
        where = f" {difference.store_path}:" if difference.store_path else ""
        typer.echo(f"{name}:{where} {difference.problem}")
    if not remove:
        advice = "agentix cache verify --remove, then deploy it again"
    elif stayed:
        advice = "it is in use: end its sandboxes (agentix sandbox list), then do this again"
    else:
        advice = "removed; deploy it again"
    typer.echo(f"agentix: {each.path.name} is damaged; {advice}", err=True)


def _checked(each: Checked, removed: bool) -> dict[str, Any]:
    return {
        "path": str(each.path),
        "title": each.title or None,
        "intact": not each.differences,
        "removed": bool(each.differences) and removed,
        "differences": [
            {"store_path": difference.store_path, "problem": difference.problem}
            for difference in each.differences
        ],
    }


def _document(each: Deployed, usage: Usage) -> dict[str, Any]:
    shared = usage.shared(each)
    manifest = each.manifest
    return {
        "bundle": each.ref,
        "path": str(each.path),
        "name": manifest.name if manifest else None,
        "version": manifest.version if manifest else None,
        "platform": manifest.platform if manifest else None,
        "size": each.size,
        "shared": shared,
        "own": each.size - shared,
        "used": _moment(each.used),
        "in_use": each.in_use,
    }


def _row(each: Deployed, usage: Usage) -> tuple[str, ...]:
    return (
        each.ref,
        _name(each),
        each.manifest.platform if each.manifest else "?",
        amount(each.size),
        amount(each.size - usage.shared(each)),
        "in use" if each.in_use else age(time.time() - each.used),
    )


def _name(each: Deployed) -> str:
    return each.manifest.title if each.manifest else "damaged"


def _moment(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _several(count: int) -> str:
    return f"{count} bundle{'' if count == 1 else 's'}"


def _seconds(text: str) -> float:
    return _scaled(text, {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}, "an age", "30d")


def _bytes(text: str) -> int:
    units = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
    return int(_scaled(text.lower().removesuffix("b"), units, "a size", "20g"))


def _scaled(text: str, units: dict[str, int], what: str, example: str) -> float:
    import re

    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]?)", text.strip().lower())
    if match is None or match[2] not in units:
        raise typer.BadParameter(f"{text!r} is not {what}; write it as {example}")
    return float(match[1]) * units[match[2]]
