"""What a build would do, without doing any of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix import nix, platforms
from agentix.build.fetch import missing, needs, total_size
from agentix.build.lock import State, look
from agentix.build.plan import make_plan
from agentix.build.record import recall
from agentix.build.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Forecast:
    """The inputs of a build, what it would fetch, and where its bundle would be.

    Without a lock that fits, only that is known: the rest is decided by locking.
    """

    lock: State
    platform: str
    up_to_date: bool = False
    name: str | None = None
    version: str | None = None
    toolchain: str | None = None
    sources: dict[str, int] | None = None  # files of each project
    wheels: int = 0
    releases: int = 0  # that are built, having no wheel
    system: int = 0
    npm: int = 0
    nix: str | None = None
    plugins: dict[str, list[str]] | None = None  # what each asks for
    fetch: tuple[str, ...] = ()
    fetch_size: int = 0
    output: Path | None = None

    def lines(self) -> Iterator[str]:
        """Yield the forecast for a reader, line by line."""
        if self.lock != "current":
            yield f"lock     bundle.lock is {self.lock}: would resolve, and then decide the rest"
            return
        yield f"bundle   {self.name} {self.version} for {self.platform}, toolchain {self.toolchain}"
        for project, files in (self.sources or {}).items():
            yield f"source   {project}: {files} files"
        built = f", {self.releases} built from source" if self.releases else ""
        tarballs = f", {self.npm} npm packages" if self.npm else ""
        debs = f"{self.system} Debian packages for system tools"
        yield f"locked   {self.wheels} wheels{built}, {debs}{tarballs}"
        if self.nix:
            yield f"nix      what {self.nix} gives"
        for plugin, asked in (self.plugins or {}).items():
            yield f"plugin   {plugin} asks for {', '.join(asked)}"
        if self.fetch:
            yield f"fetch    {len(self.fetch)} files, {self.fetch_size / 1e6:.1f} MB"
            for file in self.fetch:
                yield f"         {file}"
        else:
            yield "fetch    nothing: everything is in the Nix store"
        yield f"build    {'nothing: up to date' if self.up_to_date else 'what Nix has not yet'}"
        yield f"write    {self.output}"


def forecast(
    root: Path,
    *,
    output: Path | None = None,
    name: str | None = None,
    platform: str | None = None,
    python: str | None = None,
    compress: bool | None = None,
) -> Forecast:
    """Return what building the project in *root* would do; the words are those of build_bundle.

    Changes nothing and uses no network.
    """
    request = Request.of(
        root, output=output, name=name, platform=platform, python=python, compress=compress
    )
    store = nix.find()
    state, lock = look(Path(request.root), python=python)
    if lock is None or state != "current":
        return Forecast(state, request.platform)
    plan = make_plan(lock, request)
    wanted = needs(lock, request.platform, platforms.current().name)
    lacking = missing(wanted, store).artifacts()
    target = lock.platforms[request.platform]
    return Forecast(
        lock=state,
        platform=request.platform,
        up_to_date=recall(request) is not None,
        name=plan.name,
        version=plan.version,
        toolchain=lock.toolchain,
        sources={project: len(source.files) for project, source in plan.sources.items()},
        wheels=len(target.wheels),
        releases=len(target.sources),
        system=len(target.system),
        npm=sum(len(tool.targets[request.platform].packages) for tool in lock.npm),
        nix=lock.nix,
        plugins={name: declared.lines() for name, declared in (lock.plugins or {}).items()},
        fetch=tuple(file.file for file in lacking),
        fetch_size=total_size(lacking),
        output=plan.output,
    )
