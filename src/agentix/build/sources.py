"""Which files are a project's source: exactly those that its author would commit."""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from agentix.errors import ProjectError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from agentix.build.lock import Lock

LOCK_FILE = "bundle.lock"  # named here, where it is left out: importing the lock's model is slow
NEVER = frozenset({".git", "__pycache__", ".venv"})  # at any depth
OUTPUTS = frozenset({"build", "dist", "result"})  # at the root only: a package may be called build


@dataclass(frozen=True, slots=True)
class Source:
    """A project's folder and the files in it that count, as POSIX paths, sorted."""

    root: Path
    files: tuple[str, ...]


def sources(lock: Lock, root: Path) -> dict[str, Source]:
    """Return the source of each project of *lock*, whose own project is in the folder *root*.

    A project that lies inside another one's folder is left out of the outer one, so that editing
    the inner does not rebuild the outer.
    """
    folders = {p.name: Path(os.path.normpath(root.resolve() / p.path)) for p in lock.projects}
    found = {}
    for name, folder in folders.items():
        if not folder.is_dir():
            raise ProjectError(
                f"the source of {name} is not at {folder}; run `agentix lock`, or put it back"
            )
        inner = [other for other in folders.values() if other != folder]
        found[name] = Source(folder, tuple(source_files(folder, without=inner)))
    return found


def source_files(root: Path, *, without: Collection[Path] = ()) -> list[str]:
    """Return the files of the project in *root*: relative POSIX paths, sorted, no folders.

    In a git repository these are the files that git tracks or would track; elsewhere all files
    but build outputs. Folders in *without* are left out.
    """
    listed = _from_git(root)
    names = _walk(root) if listed is None else listed
    outside = [_below(folder, root) for folder in without]
    prefixes = tuple(f"{folder}/" for folder in outside if folder is not None)
    files = sorted(
        name
        for name in set(names)
        if name != LOCK_FILE and not name.startswith(prefixes) and _is_file(root / name)
    )
    for name in files:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise ProjectError(
                f"the file name {os.fsencode(name)!r} in {root} is not UTF-8; rename the file"
            ) from None
    return files


def lost_links(source: Source) -> list[str]:
    """Return the links in *source* that lead to something, but to nothing that is in it too.

    The build sees only the source, where such a link leads nowhere: what it stands for is missing.
    """
    root = source.root.resolve()
    inside = {root / name for name in source.files}
    inside |= {root / folder for name in source.files for folder in PurePosixPath(name).parents}
    return [
        name
        for name in source.files
        if (link := root / name).is_symlink()
        and link.exists()
        and (link.readlink().is_absolute() or link.resolve() not in inside)
    ]


def _from_git(root: Path) -> list[str] | None:
    """Return what git lists below *root*, or None when the project is not in a repository."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "ls-files"]
    command += ["-z", "-t", "--cached", "--others", "--exclude-standard"]
    try:
        result = subprocess.run(
            command,
            cwd=root,
            env=clean | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        if any((folder / ".git").exists() for folder in (root, *root.parents)):
            raise ProjectError(
                f"{root} is in a git repository, but git is not installed; install git, "
                "so that ignored files (secrets, caches) stay out of the bundle"
            ) from None
        return None
    if result.returncode != 0:
        reason = result.stderr.decode(errors="replace").strip()
        if "not a git repository" in reason:
            return None
        raise ProjectError(f"git cannot list the files of {root}: {' '.join(reason.split())}")
    entries = [os.fsdecode(entry) for entry in result.stdout.split(b"\0") if entry]
    listed = [entry[2:] for entry in entries if entry[0] != "?" or not _is_output(entry[2:])]
    listed = [name for name in listed if NEVER.isdisjoint(name.split("/"))]
    # A project inside a folder that an outer repository ignores is not that repository's.
    return listed if "pyproject.toml" in listed or "setup.py" in listed else None


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        below = Path(folder).relative_to(root)
        at_root = below == Path()
        for name in list(folders):
            if name in NEVER or (at_root and _is_output(name)):
                folders.remove(name)
            elif (Path(folder) / name).is_symlink():
                yield (below / name).as_posix()
        for name in files:
            if not (at_root and _is_output(name)) and name not in NEVER:
                yield (below / name).as_posix()


def _is_output(name: str) -> bool:
    """Say whether the path *name* is a build output at the root, or lies in one."""
    first = name.split("/")[0]
    return first in OUTPUTS or first.startswith("result-")


def _is_file(path: Path) -> bool:
    """Say whether *path* can be part of a source: a file or a link, not a folder (a submodule)."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False  # deleted, though git still lists it
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _below(folder: Path, root: Path) -> str | None:
    try:
        return folder.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return None
