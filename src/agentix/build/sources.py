"""Which files are a project's source: exactly those that its author would commit."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from agentix.build.command import Command
from agentix.errors import ProjectError
from agentix.replacing import is_draft
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

LOCK_FILE = "bundle.lock"  # named here, where it is left out: importing the lock's model is slow
_TIMEOUT = 300.0  # seconds for git, however slow the disk
# What nobody commits, unless git tracks it: then it belongs like everything else.
NEVER = frozenset({".git", "__pycache__", ".venv"})  # at any depth
OUTPUTS = frozenset({"build", "dist", "result"})  # at the root only: a package may be called build
BUNDLE = ".bundle.tar"  # at any depth, wherever `agentix build` was told to write


@dataclass(frozen=True, slots=True)
class Source:
    """A project's folder and the files in it that count, as POSIX paths, sorted."""

    root: Path
    files: tuple[str, ...]


def source_files(root: Path, *, without: Collection[Path] = ()) -> list[str]:
    """Return the files of the project in *root*: relative POSIX paths, sorted, no folders.

    These are the files that git tracks or would track, also where there is no repository yet; on
    a machine without git, all files but build outputs. Folders in *without* are left out.
    """
    names = _names(root)
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


def unseen(source: Source, projects: Collection[Path]) -> list[str]:
    """Return what an author would miss in *source*: it is there, and the build does not see it.

    That is a link to something that is not in the source too, and a repository inside this one
    (a submodule) unless it holds one of the *projects*.
    """
    root = source.root.resolve()
    inside = {root / name for name in source.files}
    inside |= {root / folder for name in source.files for folder in PurePosixPath(name).parents}

    def leads_out(path: Path) -> bool:
        return path.exists() and (path.readlink().is_absolute() or path.resolve() not in inside)

    def is_foreign(path: Path) -> bool:
        return path.is_dir() and not any(p.resolve().is_relative_to(path) for p in projects)

    paths = [root / name for name in _names(root)]
    lost = [path for path in paths if (leads_out if path.is_symlink() else is_foreign)(path)]
    return sorted(path.relative_to(root).as_posix() for path in lost)


def _names(root: Path) -> Collection[str]:
    """Return what there is below *root* that an author would commit: files, links, submodules."""
    if shutil.which("git") is None:
        _refuse_to_guess(root)
        return list(_walk(root))
    listed = _from_git(root)
    # A project inside a folder that an outer repository ignores is not that repository's.
    if listed is None or {"pyproject.toml", "setup.py"}.isdisjoint(listed):
        with tempfile.TemporaryDirectory(prefix="agentix-") as name:
            repository = Path(name)
            (repository / "objects").mkdir()
            (repository / "refs").mkdir()
            (repository / "HEAD").write_text("ref: refs/heads/none\n")
            listed = _from_git(root, f"--git-dir={repository}", f"--work-tree={root}")
    return listed or ()


def _refuse_to_guess(root: Path) -> None:
    """Raise ProjectError when only git could tell which files below *root* are meant to stay."""
    marks = (root / ".gitignore", *(folder / ".git" for folder in (root, *root.parents)))
    if any(mark.exists() for mark in marks):
        raise ProjectError(
            f"{root} is kept with git, but git is not installed; install git, "
            "so that ignored files (secrets, caches) stay out of the bundle"
        )


def _from_git(root: Path, *options: str) -> list[str] | None:
    """Return what git lists below *root*, or None when the project is not in a repository."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", *options, "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "ls-files"]
    command += ["-z", "-t", "--cached", "--others", "--exclude-standard"]
    ended = Command(
        command,
        raises=ProjectError,
        timeout=_TIMEOUT,
        cwd=root,
        environment=clean | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
    ).run()
    if ended.status != 0:
        if "not a git repository" in ended.errors:
            return None
        reason = plain(" ".join(ended.errors.split()))
        raise ProjectError(f"git cannot list the files of {root}: {reason}")
    entries = [os.fsdecode(entry) for entry in ended.output.split(b"\0") if entry]
    return [entry[2:] for entry in entries if entry[0] != "?" or not _is_residue(entry[2:])]


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
            if not _is_residue(path := (below / name).as_posix()):
                yield path


def _is_residue(name: str) -> bool:
    """Say whether the path *name*, which git does not track, is what nobody would commit."""
    *_, last = parts = name.split("/")
    made = last.endswith(BUNDLE) or is_draft(last)
    return made or _is_output(name) or not NEVER.isdisjoint(parts)


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
