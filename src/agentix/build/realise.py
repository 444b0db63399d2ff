"""The steps of a build that is not there already."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentix import nix, platforms
from agentix.build.built import BuiltBundle
from agentix.build.check import check_steps, check_tar
from agentix.build.expressions import expressions
from agentix.build.fetch import fetch, needs
from agentix.build.lacking import tell_lacks
from agentix.build.lock import current_lock
from agentix.build.lock.inputs import DECIDING
from agentix.build.nixpkgs import asks_for_nixpkgs, explained, is_fetched
from agentix.build.plan import make_plan
from agentix.build.project import workspace_root
from agentix.build.record import Inputs, remember
from agentix.build.sources import unseen
from agentix.build.toolchain import toolchains
from agentix.bundle import write_bundle
from agentix.errors import BundleError, NixError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix.build.plan import Plan
    from agentix.build.request import Request
    from agentix.bundle import WrittenBundle
    from agentix.nix import Nix
    from agentix.progress import Progress


def realise(request: Request, offline: bool, check: bool, progress: Progress) -> BuiltBundle:
    """Lock, fetch, build and export what *request* asks for, each as far as it is needed."""
    store = nix.find()
    root = Path(request.root)
    lock = current_lock(root, python=request.python, offline=offline, progress=progress)
    plan = make_plan(lock, request)
    _tell_unseen(plan, progress)
    inputs = _inputs(plan)
    before = inputs.digest()
    wanted = needs(lock, request.platform, platforms.current().name)

    def bring(*, thorough: bool = False) -> bool:
        """Fetch what is missing; say whether anything was."""
        fetched = fetch(
            wanted,
            project=root,
            python=lock.python,
            offline=offline,
            thorough=thorough,
            progress=progress,
            store=store,
        )
        return fetched.present < len(wanted.artifacts())

    bring()
    asks = asks_for_nixpkgs(lock, root)
    if asks and offline and not is_fetched(store):
        plan = replace(plan, without_nixpkgs=True)
    builder = replace(store, substitutes=asks and not offline)
    with tempfile.TemporaryDirectory(prefix="agentix-") as scratch:
        link = Path(scratch, "result")  # keeps a garbage collection away until the tar is written
        store_path = _build(plan, link, builder, bring, progress)
        if check:
            check_steps(expressions() / "build.nix", _arguments(link), store, progress)
        tell_lacks(
            store.real((store_path / "runtime/environment").readlink()),
            toolchains()[lock.toolchain].suite,
            request.platform,
            offline,
            progress,
        )
        written = _export(store_path, plan.output, store, progress, compress=request.compress)
        if check:
            check_tar(written.path, store_path, nix.closure(store_path, nix=store), progress)
    bundle = BuiltBundle(
        path=written.path,
        sha256=written.sha256,
        size=written.size,
        name=plan.name,
        version=plan.version,
        platform=plan.platform,
        store_path=store_path,
    )
    if inputs.digest() == before:  # else somebody edited meanwhile, and the next build must look
        remember(request, inputs, before, bundle)
    return bundle


def _tell_unseen(plan: Plan, progress: Progress) -> None:
    roots = [source.root for source in plan.sources.values()]
    for source in plan.sources.values():
        if lost := unseen(source, roots):
            with progress.step("source") as step:
                more = f" and {len(lost) - 1} more lead" if lost[1:] else " leads"
                step.outcome(
                    f"warning: {source.root / lost[0]}{more} out of the source (a link or a "
                    "submodule), and the build does not see what is there"
                )


def _inputs(plan: Plan) -> Inputs:
    roots = [source.root for source in plan.sources.values()]
    spaces = {workspace_root(plan.lock.parent)}
    deciding = {folder / name for folder in {*roots, *spaces} for name in DECIDING}
    return Inputs(
        trees=tuple((str(root), tuple(str(o) for o in roots if o != root)) for root in roots),
        files=(str(plan.lock), *sorted(map(str, deciding))),
        output=str(plan.output),
    )


def _build(
    plan: Plan, link: Path, store: Nix, bring: Callable[..., bool], progress: Progress
) -> Path:
    arguments = _arguments(link)
    Path(arguments["plan"]).write_text(plan.dumps(), encoding="utf-8")

    def attempt() -> Path:
        return nix.build(
            expressions() / "build.nix", arguments, out_link=link, nix=store, progress=progress
        )

    try:
        return attempt()
    except NixError as error:
        if (better := explained(error)) is not None:
            raise better from error
        # An artifact whose path exists, but which the store does not know to be whole.
        if error.returncode is None or not bring(thorough=True):
            raise
        return attempt()


def _arguments(link: Path) -> dict[str, str]:
    return {"plan": str(link.with_name("plan.json"))}


def _export(
    store_path: Path, output: Path, store: Nix, progress: Progress, *, compress: bool = False
) -> WrittenBundle:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BundleError(
            f"cannot write into {output.parent}: {error.strerror}; choose another --output"
        ) from error
    closure = nix.closure(store_path, nix=store)
    return write_bundle(store_path, closure, output, progress, compress=compress)
