"""``agentix doctor``: what this machine has and lacks, and what to do about it."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from agentix.cli.output import Format, FormatOption, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.doctor import Entry, Report

_COLOURS = {"ok": "green", "note": "yellow", "problem": "bold red"}
_WIDTH = 12  # of the subjects; longer names push their own line


def command(
    offline: Annotated[
        bool, typer.Option("--offline", help="Leave out what takes a network.")
    ] = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Say what this machine lacks, and what to do about it.

    Exits with 1 if it cannot build bundles, or cannot run them. Takes ten seconds at most.
    """
    from agentix.doctor import every_check, examine

    with _waiting():
        report = examine(every_check(offline=offline))
    if form is Format.JSON:
        print_json(_document(report))
    else:
        _print(report)
    status = 1 if report.problems else 0
    if report.unfinished:
        _leave(status)
    raise typer.Exit(status)


def _leave(status: int) -> NoReturn:
    """Exit without waiting for what hangs in a library, as the end of Python otherwise would."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _document(report: Report) -> dict[str, object]:
    return {
        "healthy": not report.problems,
        "findings": [
            {
                "area": entry.area,
                "subject": entry.subject,
                "level": entry.finding.level,
                "text": entry.finding.text,
                "advice": entry.finding.advice or None,
            }
            for entry in report.entries
        ],
    }


def _print(report: Report) -> None:
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        _print_table(report)
    else:
        for entry in report.entries:
            level, subject = entry.finding.level, f"{entry.subject}:"
            typer.echo(f"{level:<8} {subject:<{_WIDTH}} {_sentence(entry)}")
    typer.echo(_verdict(report))


def _print_table(report: Report) -> None:
    """Draw what a person looks at: in groups, with colours, folded to the terminal's width."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    for area, entries in groupby(report.entries, key=lambda entry: entry.area):
        table = Table.grid(padding=(0, 1))
        table.add_column(width=len("problem"))
        table.add_column(width=_WIDTH, overflow="fold")
        table.add_column(overflow="fold")
        for entry in entries:
            level = Text(entry.finding.level, _COLOURS[entry.finding.level])
            table.add_row(level, Text(entry.subject), Text(_sentence(entry)))
        console.print(Text(area, "bold"))
        console.print(table)
        console.print()


def _sentence(entry: Entry) -> str:
    finding = entry.finding
    return f"{finding.text}; {finding.advice}" if finding.advice else finding.text


def _verdict(report: Report) -> str:
    if not report.problems:
        return "this machine can build bundles and run them"
    names = ", ".join(dict.fromkeys(entry.subject for entry in report.problems))
    count = len(report.problems)
    return f"{count} problem{'' if count == 1 else 's'}: {names}"


@contextmanager
def _waiting() -> Iterator[None]:
    """Show on a terminal that something is going on."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb" or os.environ.get("CI"):
        yield
        return
    from rich.console import Console

    with Console(file=sys.stderr).status("looking"):
        yield
