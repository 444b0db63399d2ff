"""What ``agentix`` is told: each subcommand is a module beside this one, loaded when asked for.

Errors that Agentix raises on purpose, and the system's, become one line and exit code 1; wrong
usage is exit code 2; tracebacks need ``--verbose``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from agentix.errors import AgentixError, NixError

if TYPE_CHECKING:
    from collections.abc import Callable

_COMMANDS = (
    "init",
    "build",
    "lock",
    "fetch",
    "bundle",
    "deploy",
    "cache",
    "sandbox",
    "plugin",
    "doctor",
)  # in the order of the help screen
_PLUGIN_GROUP = "agentix.commands"


def _single(name: str, function: Callable[..., None]) -> Any:
    """Make the Click command of a module that holds one function."""
    holder = typer.Typer(add_completion=False)
    holder.command(name)(function)
    return typer.main.get_command(holder)


class _Commands(TyperGroup):
    """Find a command by its module, or by the entry point of the plugin that brings it."""

    def list_commands(self, ctx: Any) -> list[str]:
        from importlib.metadata import entry_points

        plugins = {point.name for point in entry_points(group=_PLUGIN_GROUP)}
        return [*_COMMANDS, *sorted(plugins - set(_COMMANDS))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _COMMANDS:
            source: Any = import_module(f"agentix.cli.{cmd_name}")
            loaded = getattr(source, "app", None) or source.command
        else:
            from importlib.metadata import entry_points  # slow, and not for our own commands

            points = entry_points(group=_PLUGIN_GROUP, name=cmd_name)
            if not points:
                return None
            try:
                loaded = next(iter(points)).load()
            except Exception as error:  # a plugin's code: whatever it raises is its own failure
                message = f"command {cmd_name!r} of a plugin does not load: {error!r}"
                raise AgentixError(message) from error
        if isinstance(loaded, typer.Typer):
            loaded.info.name = cmd_name
            return typer.main.get_command(loaded)
        return _single(cmd_name, loaded)


app = typer.Typer(
    cls=_Commands,
    name="agentix",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"agentix {version('agentix')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show tracebacks. Works after the command, too.")
    ] = False,
) -> None:
    """Turn a Python project into a reproducible bundle and run it in any sandbox."""


def run(arguments: list[str]) -> None:
    """Do what *arguments* say; leaves by SystemExit, whose code tells how that went."""
    verbose = "--verbose" in arguments
    arguments = [argument for argument in arguments if argument != "--verbose"]
    try:
        app(arguments, prog_name="agentix")
    except AgentixError as error:
        if verbose:
            raise
        if isinstance(error, NixError):
            for line in error.log.splitlines():  # what the failing step said
                if line not in str(error):
                    print(f"  | {line}", file=sys.stderr)  # noqa: T201
        fail(str(error))
    except BrokenPipeError:
        sys.stderr.close()  # the reader left; there is nobody to tell
        sys.exit(1)
    except Exception as error:
        if verbose:
            raise
        if isinstance(error, OSError) and error.strerror is not None:  # the machine's, not ours
            what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
            fail(f"{what}; --verbose shows what needed it")
        name = type(error).__name__
        fail(f"unexpected {name}: {error}; --verbose shows where, please report it")


def fail(message: str) -> NoReturn:
    """Say why in one line, and exit."""
    print(f"agentix: {message}", file=sys.stderr)  # noqa: T201 - this is the command's voice
    sys.exit(1)
