"""``agentix deploy BACKEND BUNDLE``: bring a bundle to where a provider finds it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from agentix.cli.output import Format, FormatOption, print_json

if TYPE_CHECKING:
    from agentix.provider.deploy import DeployedBundle


class _Backends(TyperGroup):
    """One subcommand for each installed provider, found when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        from agentix.provider.registry import providers

        return [*super().list_commands(ctx), *providers().names()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is None:
            from agentix.provider.registry import providers

            providers().require(cmd_name)
            command = _command_for(cmd_name)
        return command


app = typer.Typer(cls=_Backends, no_args_is_help=True, add_completion=False)


@app.callback()
def _deploy() -> None:
    """Bring a bundle to where a provider finds it."""


@app.command("list")
def _list(form: FormatOption = Format.TEXT) -> None:
    """List the backends that bundles can be deployed to."""
    from agentix.provider.registry import providers

    names = sorted(providers().all())
    if form is Format.JSON:
        print_json(names)
    else:
        typer.echo("\n".join(names) or "no provider is installed; install agentix-provider-…")


def _command_for(backend: str) -> Any:
    """Make the subcommand of *backend*; whether that loads shows when it is run."""

    def deploy(
        bundle: Annotated[
            str, typer.Argument(help="A .bundle.tar, a cache entry, sha256-…, or a nix result.")
        ],
        name: Annotated[
            str | None, typer.Option(help="What to call it, where the backend has names.")
        ] = None,
        platform: Annotated[
            str | None, typer.Option(help="The platform that it must be for, as linux/amd64.")
        ] = None,
        form: FormatOption = Format.TEXT,
    ) -> None:
        from agentix.cli.progress import terminal_progress
        from agentix.errors import BundleError
        from agentix.provider.deploy import deploy as deploy_to
        from agentix.provider.registry import providers

        if not bundle.strip():  # which a path would take for the folder that this runs in
            raise BundleError("no bundle was given; give what `agentix build` printed")
        provider = providers().get(backend)
        with terminal_progress() as progress:
            deployed = asyncio.run(
                deploy_to(provider, Path(bundle), name=name, platform=platform, progress=progress)
            )
        _print(deployed, form)

    holder = typer.Typer(add_completion=False)
    holder.command(backend, help=f"Deploy a bundle to {backend}.")(deploy)
    return typer.main.get_command(holder)


def _print(deployed: DeployedBundle, form: Format) -> None:
    if form is Format.JSON:
        document = {
            "bundle": deployed.bundle,
            "platform": deployed.platform,
            "metadata": dict(deployed.metadata),
        }
        print_json(document)
        return
    typer.echo(deployed.bundle)
    for label, hint in {"platform": deployed.platform, **deployed.metadata}.items():
        typer.echo(f"{label}: {hint}", err=True)
    for label, command in deployed.hints.items():
        typer.echo(f"{label}: {command}", err=True)
