"""Decide which releases a tool consists of: by what it says itself, or by asking npm.

A native tool names each of its packages exactly, so there is nothing to decide and npm need not be
installed. Ranges of versions are npm's own business: nobody else solves them as it does.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from agentix.build.command import Command
from agentix.build.npm.package import Package, Wanted, exactly
from agentix.build.npm.registry import NotThere
from agentix.build.npm.tree import FOLDER, place
from agentix.errors import LockError
from agentix.text import plain
from agentix.ungrouped import ungrouped
from agentix.validation import first_fault

if TYPE_CHECKING:
    from agentix.build.npm.registry import Registry, Release

_MOST = 2000  # packages of one tool; one that names ever more would never end
_TIMEOUT = 600.0  # seconds for npm to resolve
# What must not depend on its user's settings: nothing is run, nothing but the lock is written.
_OPTIONS = (
    "--package-lock-only",
    "--ignore-scripts",
    "--lockfile-version=3",
    "--package-lock=true",
    "--include=optional",
    "--include=peer",
    "--omit=dev",
    "--install-strategy=hoisted",
    "--global=false",
    "--workspaces=false",
    "--dry-run=false",
    "--audit=false",
    "--fund=false",
    "--update-notifier=false",
    "--loglevel=error",
)
# What reading an answer of another shape raises.
_ODD = (ValueError, LookupError, AttributeError, TypeError, RecursionError)
_NOISE = re.compile(r"^npm (error|ERR!) ?(code \S+$|A complete log of this run.*|[a-z]+$)?")


class _Choice(Exception):  # noqa: N818 - never leaves this module
    """Something has to be decided, and why."""


async def resolve(registry: Registry, wanted: Wanted, root: Path) -> dict[str, Package]:
    """Return all packages of the tool *wanted* by where they lie, for every platform.

    *root* is the folder whose npm settings apply. Raises LockError, also when only npm could
    resolve it and is not installed.
    """
    try:
        return await _exact(registry, wanted)
    except _Choice as choice:
        npm = shutil.which("npm")
        if npm is None:
            raise LockError(
                f"cannot lock {wanted}: {choice}, and npm, which decides that, is not installed; "
                "install npm to lock (on Debian and Ubuntu: apt-get install npm)"
            ) from None
    return await _by_npm(npm, wanted, root)


async def _exact(registry: Registry, wanted: Wanted) -> dict[str, Package]:
    """Return the tree of a tool that leaves no choice; raise _Choice for any other."""
    tree: dict[str, Package] = {}
    versions = {wanted.name: wanted}
    waiting: dict[str, tuple[Wanted, bool]] = {wanted.name: (wanted, False)}
    while waiting:
        if len(tree) + len(waiting) > _MOST:
            raise LockError(f"cannot lock {wanted}: it needs more than {_MOST} packages")
        with ungrouped():
            async with asyncio.TaskGroup() as group:
                tasks = {
                    name: group.create_task(_release(registry, one, optional))
                    for name, (one, optional) in waiting.items()
                }
        names, waiting = set(waiting), {}
        for name, task in tasks.items():
            if (release := task.result()) is None:
                continue
            package = tree[place(name)] = release.package
            if package.bundled or package.has_shrinkwrap:
                raise _Choice(f"{package} brings packages of its own")
            needs = [(*need, False) for need in package.required.items()]
            needs += [(*need, False) for need in package.peers.items()]
            needs += [(*need, True) for need in package.optional.items()]
            for need, spec, optional in needs:
                one = exactly(need, spec)
                if one is None:
                    raise _Choice(f"{package} depends on {need} {spec}")
                if versions.setdefault(need, one) != one:
                    raise _Choice(f"it needs two versions of {need}")
                if place(need) not in tree and need not in names:
                    waiting[need] = (one, optional and waiting.get(need, (one, True))[1])
    return tree


async def _release(registry: Registry, wanted: Wanted, optional: bool) -> Release | None:
    try:
        return await registry.release(wanted)
    except NotThere:
        if optional:  # as npm does: its author has left it out
            return None
        raise


async def _by_npm(npm: str, wanted: Wanted, root: Path) -> dict[str, Package]:
    """Return the tree that npm makes of the tool, in a folder that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="agentix-") as name:
        scratch = Path(name)
        await asyncio.to_thread(_prepare, scratch, wanted, root)
        command = Command(
            [npm, "install", *_OPTIONS, f"--prefix={scratch}"],
            raises=LockError,
            timeout=_TIMEOUT,
            cwd=scratch,
            environment=os.environ | {"NO_COLOR": "1"},
        )
        ended = await command.run_aside()
        if ended.status != 0:
            raise LockError(f"npm cannot resolve {wanted}: {_gist(ended.errors)}")
        try:
            text = await asyncio.to_thread((scratch / "package-lock.json").read_bytes)
            return _tree(json.loads(text))
        except ValidationError as error:
            raise LockError(f"cannot read what npm resolved: {first_fault(error)}") from error
        except (
            OSError,
            ValueError,
            LookupError,
            AttributeError,
            TypeError,
            RecursionError,
        ) as error:
            raise LockError(f"cannot read what npm resolved: {error}; try another npm") from error


def _prepare(scratch: Path, wanted: Wanted, root: Path) -> None:
    manifest = {"private": True, "dependencies": {wanted.name: wanted.version}}
    (scratch / "package.json").write_text(json.dumps(manifest), encoding="utf-8")
    if (settings := root / ".npmrc").is_file():
        shutil.copyfile(settings, scratch / ".npmrc")


def _tree(lock: dict[str, Any]) -> dict[str, Package]:
    found: dict[str, Package] = {}
    for path, entry in lock["packages"].items():
        if not path:
            continue
        name = entry.get("name") or path.rpartition(f"{FOLDER}/")[2]
        address = str(entry.get("resolved") or "")
        if entry.get("link") or address.startswith(("git", "file:")):
            raise LockError(
                f"{name} comes from {'version control' if address[:3] == 'git' else 'a folder'}, "
                "and of npm only releases can be locked"
            )
        found[path] = Package.model_validate(entry | {"name": name})
    return found


def _gist(text: str) -> str:
    lines = (_NOISE.sub("", line.strip()).strip() for line in text.splitlines())
    words = " ".join(dict.fromkeys(line for line in lines if line))
    return plain(words)[:500].rstrip(".") or "it gave no reason"
