"""Bundles that do one thing wrong, made of one that is right: its static shell and a script."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from typing import TYPE_CHECKING

from agentix.bundle import BundleCache

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.bundle import CachedBundle

_ROOT = f"{'0' * 32}-scripted-bundle"
_SHELL = re.compile(r"#!(/nix/store/[^/\s]+)/(\S+) sh\b")

OBSTINATE = """
trap '' TERM HUP INT
exec 3<&0
{runtime}/bootstrap.sh "$@" <&3 3<&- &
exec 3<&-
while :; do wait; {shell} sleep 1000; done
"""
"""A first process that ignores signals, with the real runtime below it."""


def scripted(bundle: str | Path, folder: Path, script: str, *, platform: str | None = None) -> Path:
    """Return a deployed bundle, below *folder*, whose bootstrap.sh is *script*.

    ``{runtime}`` in it becomes the folder of the real runtime, ``{shell}`` the static shell.
    """
    original = BundleCache().open(bundle)
    store, program = _shell(original)
    whole = "{runtime}" in script
    text = script.format(runtime=original.manifest.runtime, shell=f"{store}/{program}")
    closure = original.manifest.closure
    kept = set(closure) if whole else {store.rpartition("/")[2]}
    manifest = original.manifest.model_copy(
        update={
            "platform": platform or original.manifest.platform,
            "closure": {name: closure[name] for name in kept}
            | {_ROOT: closure[original.manifest.root]},
            "root": _ROOT,
        }
    )
    content = manifest.to_bytes()
    entry = folder / f"sha256-{hashlib.sha256(content + text.encode()).hexdigest()}"
    if (entry / "manifest.json").exists():
        return entry
    runtime = entry / "nix/store" / _ROOT / "runtime"
    for path in (*reversed(runtime.relative_to(folder).parents), runtime, entry / "nix/run"):
        (folder / path).mkdir(exist_ok=True)
        (folder / path).chmod(0o755)  # whatever the umask
    for name in kept:
        _link(original.nix / "store" / name, entry / "nix/store" / name)
    bootstrap = runtime / "bootstrap.sh"
    bootstrap.write_text(f"#!{store}/{program} sh\n{text}\n")
    bootstrap.chmod(0o755)
    if whole:  # engines of other machines are reached by its Python
        environment = original.nix / "store" / original.manifest.root / "runtime/environment"
        (runtime / "environment").symlink_to(environment.readlink())
    (entry / "nix/runtime").symlink_to(manifest.runtime)
    (entry / "manifest.json").write_bytes(content)
    return entry


def _shell(bundle: CachedBundle) -> tuple[str, str]:
    bootstrap = bundle.nix / "store" / bundle.manifest.root / "runtime/bootstrap.sh"
    match = _SHELL.match(bootstrap.read_text())
    assert match, f"{bootstrap} is not run by a shell of the bundle's own"
    return match[1], match[2]


def _link(source: Path, target: Path) -> None:
    """Make *target* the same as *source*, by hard links where the file system is the same."""

    def copy(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:
            shutil.copy2(one, other)

    shutil.copytree(source, target, symlinks=True, copy_function=copy)
