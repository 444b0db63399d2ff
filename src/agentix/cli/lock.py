"""``agentix lock``: decide, and write down, what a bundle is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentix.cli.options import PythonOption
from agentix.cli.output import Format, FormatOption, print_json


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH|NAME",
            help="The project's folder, and with --upgrade the packages to take anew.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Fail when the lock is out of date; write nothing.")
    ] = False,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Take new versions, of all packages or of NAME.")
    ] = False,
    python: PythonOption = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Resolve a project's dependencies into its bundle.lock."""
    path, names = _split(words or [], upgrade)
    if check and upgrade:
        raise typer.BadParameter("--check writes nothing, so it cannot --upgrade")
    from agentix.build.lock import check_lock, write_lock
    from agentix.cli.progress import terminal_progress

    if check:
        check_lock(path, python=python)
        _tell(path / "bundle.lock", "up to date", f"{path / 'bundle.lock'} is up to date", form)
        return
    with terminal_progress() as progress:
        written = write_lock(
            path, python=python, upgrade=(names or True) if upgrade else (), progress=progress
        )
    state = "written" if written.changed else "unchanged"
    _tell(written.file, state, f"{written.file} {state}", form)


def _tell(file: Path, state: str, sentence: str, form: Format) -> None:
    if form is Format.JSON:
        print_json({"lock": str(file), "state": state})
    else:
        typer.echo(sentence)


def _split(words: list[str], upgrade: bool) -> tuple[Path, list[str]]:
    """Tell the project's folder from the names to upgrade: a name is no path and no project."""
    if not words:
        return Path(), []
    first = Path(words[0])
    if not upgrade:
        if len(words) > 1:
            raise typer.BadParameter(f"{words[1]!r} is one word too many; names need --upgrade")
        return first, []
    scoped = words[0].startswith("@")  # a package of npm's
    is_path = ("/" in words[0] and not scoped) or words[0].startswith(".")
    is_path = is_path or (first / "pyproject.toml").is_file()
    return (first, words[1:]) if is_path else (Path(), words)
