"""``agentix bundle``: what is in a bundle, whether it is intact, its like, and registries."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentix.cli.options import Compression, PlatformOption
from agentix.cli.output import Format, FormatOption, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.bundle.comparison import Change, Comparison, PathChange
    from agentix.bundle.inventory import Package, Tool
    from agentix.bundle.manifest import Manifest

_SHOWN = 10  # differing files of one store path
_HASH = 33  # characters before the name of a store path
_WHAT = "A .bundle.tar, a cache entry, sha256-…, or a nix result."

BundleArgument = Annotated[str, typer.Argument(help=_WHAT)]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Allow HTTP without TLS, and not only with this machine.")
]

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _bundle() -> None:
    """Look into bundles, verify and compare them, push and pull them."""


@app.command("inspect")
def _inspect(
    bundle: BundleArgument,
    sbom: Annotated[
        bool, typer.Option("--sbom", help="Print a bill of materials: CycloneDX 1.6, JSON.")
    ] = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Show what a bundle is made of: versions, licences, programs and sizes."""
    from agentix.bundle.view import look_into, programs

    with look_into(bundle) as view:
        manifest, digest = view.manifest, view.digest()
        if sbom:
            from agentix.bundle.sbom import cyclonedx

            print_json(cyclonedx(manifest, digest))
        elif form is Format.JSON:
            facts = {"digest": f"sha256:{digest}", "tar_size": view.size}
            total = sum(content.size for content in manifest.closure.values())
            commands = {"size": total, "commands": programs(view)}
            print_json(facts | commands | manifest.model_dump(mode="json"))
        else:
            for line in _described(manifest, digest, view.size, programs(view)):
                typer.echo(line)


@app.command("verify")
def _verify(bundle: BundleArgument, form: FormatOption = Format.TEXT) -> None:
    """Read every byte of a bundle and compare it with what it promises. Exits with 1 if not so."""
    from agentix.bundle.verifying import check
    from agentix.cli.progress import terminal_progress

    with terminal_progress() as progress:
        found = check(bundle, progress)
    if form is Format.JSON:
        print_json(
            {
                "intact": not found.differences,
                "digest": f"sha256:{found.digest}" if found.digest else None,
                "differences": [asdict(difference) for difference in found.differences],
            }
        )
    for difference in found.differences if form is Format.TEXT else ():
        typer.echo(f"{difference.store_path or bundle}: {difference.problem}")
    if found.differences:
        raise typer.Exit(1)
    if form is Format.TEXT:
        typer.echo(f"{found.title} is intact\nsha256:{found.digest}")


@app.command("diff")
def _diff(
    old: BundleArgument,
    new: BundleArgument,
    form: FormatOption = Format.TEXT,
) -> None:
    """Say in what two bundles differ, and why. Exits with 0 when they are the same, else with 1."""
    from agentix.bundle.comparison import compare
    from agentix.bundle.view import look_into

    with look_into(old) as one, look_into(new) as other:
        found = compare(one, other)
    if form is Format.JSON:
        print_json(_document(found))
    else:
        for line in _told(found):
            typer.echo(line)
    if not found.same:
        raise typer.Exit(1)


@app.command("push")
def _push(
    bundle: BundleArgument,
    reference: Annotated[str, typer.Argument(metavar="REGISTRY/NAME[:TAG]", help="Where to.")],
    compress: Annotated[
        Compression, typer.Option("--compress", help="How to send what is not there yet.")
    ] = Compression.ZSTD,
    insecure: InsecureOption = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Send a bundle to an OCI registry, but for what that has already."""
    from agentix.cli.progress import terminal_progress
    from agentix.distribution import push

    with terminal_progress() as progress:
        pushed = push(
            bundle,
            reference,
            compress=compress is Compression.ZSTD,
            insecure=insecure,
            progress=progress,
        )
    if form is Format.JSON:
        print_json(asdict(pushed))
    else:
        typer.echo(f"{pushed.reference}\n{pushed.bundle}")


@app.command("pull")
def _pull(
    reference: Annotated[
        str, typer.Argument(metavar="REGISTRY/NAME[:TAG|@sha256:…]", help="Which one.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write a .tar(.zst) or into a folder; without it, the cache."
        ),
    ] = None,
    platform: PlatformOption = None,
    insecure: InsecureOption = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Fetch a bundle from an OCI registry, but for what the cache has already."""
    from agentix.cli.progress import terminal_progress
    from agentix.distribution import pull

    with terminal_progress() as progress:
        pulled = pull(
            reference, platform=platform, output=output, insecure=insecure, progress=progress
        )
    if form is Format.JSON:
        print_json(asdict(pulled) | {"path": str(pulled.path)})
    else:
        typer.echo(f"{pulled.name} {pulled.version} for {pulled.platform}", err=True)
        typer.echo(f"{pulled.path}\n{pulled.bundle}")


def _described(
    manifest: Manifest, digest: str, size: int | None, commands: list[str]
) -> Iterator[str]:
    total = sum(content.size for content in manifest.closure.values())
    tar = "" if size is None else f"a tar of {_size(size)}, "
    yield f"{manifest.title} for {manifest.platform}"
    yield f"digest    sha256:{digest}"
    yield f"python    {manifest.python} ({manifest.toolchain}, {manifest.libc})"
    yield f"agentix   {manifest.agentix}, protocol {manifest.protocol}"
    yield f"size      {tar}{len(manifest.closure)} store paths of {_size(total)}"
    yield f"commands  {', '.join(commands) or 'none'}"
    for title, items in (
        ("packages", manifest.packages),
        ("tools", manifest.tools),
        ("base", manifest.base),
    ):
        if items:
            yield f"\n{title} ({len(items)})"
            yield from _items(items)
    yield f"\nstore paths ({len(manifest.closure)}), the largest first"
    contents = sorted(manifest.closure.items(), key=lambda item: (-item[1].size, item[0]))
    yield from (f"  {_size(content.size):>9}  {name}" for name, content in contents)


def _items(items: tuple[Package, ...] | tuple[Tool, ...]) -> Iterator[str]:
    from agentix.bundle.inventory import item_name

    rows = [(item_name(item), item.version, item.licences) for item in items]
    widths = (max(len(row[0]) for row in rows), max(len(row[1]) for row in rows))
    for name, version, licences in rows:
        licence = ", ".join(text.rpartition(":: ")[2] for text in licences)
        yield f"  {name:<{widths[0]}}  {version:<{widths[1]}}  {licence or '?'}".rstrip()


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _told(found: Comparison) -> Iterator[str]:
    if found.same:
        yield f"the same: sha256:{found.digests[0]}"
        return
    yield from (_change(change) for change in found.changes)
    for path in found.paths:
        yield from _path(path)


def _change(change: Change) -> str:
    kind = "" if change.kind in ("bundle", "package") else f"{change.kind} "
    name = f"{kind}{change.name}"
    if change.old is None:
        return f"{name} {change.new} added"
    if change.new is None:
        return f"{name} {change.old} removed"
    if change.old == change.new:
        return f"{name} {change.old}, with other content"
    return f"{name} {change.old} → {change.new}"


def _path(path: PathChange) -> Iterator[str]:
    old, new = path.old or "", path.new or ""
    if path.kind in ("added", "removed"):
        yield f"{path.kind}: {old or new}"
        return
    name = new[_HASH:] if old[_HASH:] == new[_HASH:] else f"{old[_HASH:]} → {new[_HASH:]}"
    if path.kind == "follows":
        causes = ", ".join(cause[_HASH:] for cause in path.because)
        other = "is the same, built with something else"
        yield f"{name}: " + (f"follows {causes}" if causes else other)
        return
    yield f"{name}: {path.count} {'path differs' if path.count == 1 else 'paths differ'}" + (
        ", though built from the same inputs" if path.kind == "unlike" else ""
    )
    # Last what differs because another file does.
    files = sorted(path.files, key=lambda file: file.path.endswith((".pyc", "/RECORD")))
    yield from (f"  {file}" for file in files[:_SHOWN])
    if path.count > _SHOWN:
        yield f"  and {path.count - _SHOWN} more"


def _document(found: Comparison) -> dict[str, Any]:
    return {
        "same": found.same,
        "digests": [f"sha256:{digest}" for digest in found.digests],
        "changes": [asdict(change) for change in found.changes],
        "paths": [asdict(path) for path in found.paths],
    }
