"""``agentix init``: the smallest project that builds."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentix.cli.output import Format, FormatOption, print_json

if TYPE_CHECKING:
    from agentix.build.initial import NewProject


def command(
    path: Annotated[Path, typer.Argument(help="The new project's folder.")] = Path(),
    form: FormatOption = Format.TEXT,
) -> None:
    """Make the smallest project that builds.

    Nothing that is there is overwritten.
    """
    from agentix.build.initial import make_project

    made = make_project(path)
    if form is Format.JSON:
        document = {
            "project": str(made.root),
            "name": made.name,
            "module": made.module,
            "files": list(made.files),
        }
        print_json(document)
        return
    for file in made.files:
        typer.echo(made.root / file)
    typer.echo(_next(made), err=True)


def _next(made: NewProject) -> str:
    import json

    from agentix import platforms

    try:
        platform = platforms.current()
    except ValueError:  # where a bundle can be built for others only
        platform = platforms.AMD64
    tar = made.root / f"dist/{made.name}-0.1.0-{platform.name.replace('/', '-')}.bundle.tar"
    return f"""
next:
    agentix build {shlex.quote(str(made.root))}
    agentix deploy bubblewrap {shlex.quote(str(tar))}

and from Python, where {made.module} can be imported:
    import asyncio
    from agentix import SandboxConfig
    from agentix.provider.bubblewrap import BubblewrapProvider
    from {made.module} import hello

    async def main() -> None:
        config = SandboxConfig(image="host", bundle={json.dumps(str(tar))})
        async with BubblewrapProvider().session(config) as sandbox:
            print(await sandbox.remote(hello, "sandbox"))

    asyncio.run(main())"""
