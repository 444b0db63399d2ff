"""The file system of unpacked Debian packages, with ``/usr`` and ``/`` as one."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAMS = ("bin", "sbin", "games")
KEPT = ("bin", "etc", "games", "include", "lib", "lib64", "libexec", "sbin", "share")
_WORTH_SHARING = 64 * 1024  # bytes; a link costs a few hundred


def merge_usr(tree: Path) -> None:
    """Move what is in ``/usr`` to the top, as on a system where the two are one."""
    for path in tree.iterdir():
        if path.is_symlink():  # how a system says so itself: /bin -> usr/bin
            path.unlink()
    for folder in (tree / "usr/local", tree / "usr"):
        if folder.is_dir():
            move(folder, tree)
            shutil.rmtree(folder)


def move(source: Path, destination: Path) -> None:
    """Move everything in *source* into *destination*, merging folders; what is there stays."""
    destination.mkdir(exist_ok=True)
    for path in sorted(source.iterdir()):
        target = destination / path.name
        if path.is_dir() and not path.is_symlink() and target.is_dir():
            move(path, target)
        elif not (target.exists() or target.is_symlink()):
            path.replace(target)


def prune(part: Path, drops: Callable[[str], bool]) -> None:
    """Remove what programs do not need: a system's other folders, and files that *drops* names."""
    for path in part.iterdir():
        kept = path.name in KEPT or path.name.endswith("-linux-gnu")  # of a cross compiler
        if not kept and path.is_dir():
            shutil.rmtree(path)
    for folder, folders, names in os.walk(part, topdown=False):
        for name in [*names, *(name for name in folders if Path(folder, name).is_symlink())]:
            if drops(f"{os.path.relpath(folder, part)}/{name}".removeprefix("./")):
                Path(folder, name).unlink()
        if not os.listdir(folder) and Path(folder) != part:  # noqa: PTH208 - the fast one
            Path(folder).rmdir()


def programs(part: Path) -> dict[str, Path]:
    """Return the programs of an unpacked package: name and place below it."""
    found: dict[str, Path] = {}
    for folder in PROGRAMS:
        if (part / folder).is_dir():
            found |= {p.name: Path(folder, p.name) for p in sorted((part / folder).iterdir())}
    return found


def inside(tree: Path, path: str) -> Path | None:
    """Return where the absolute *path* of the packages' file system is, if they have it."""
    if not path.startswith("/"):
        return None
    here = tree / path.lstrip("/").removeprefix("usr/")
    return here if os.path.lexists(here) else None


def own_links(tree: Path) -> None:
    """Make absolute links between the packages' files lead to the files here."""
    for path in sorted(tree.rglob("*")):
        if path.is_symlink() and (target := str(path.readlink())).startswith("/"):
            here = inside(tree, target)
            if here is not None:
                path.unlink()
                path.symlink_to(here)


def files(tree: Path) -> Iterator[Path]:
    """Yield every regular file, sorted."""
    for path in sorted(tree.rglob("*")):
        if not path.is_symlink() and path.is_file():
            yield path


def share(tree: Path) -> None:
    """Make one of large files with the same content: packages have hard links, the store not."""
    sizes: dict[int, list[Path]] = defaultdict(list)
    for path in files(tree):
        if path.stat().st_size >= _WORTH_SHARING:
            sizes[path.stat().st_size].append(path)
    for group in sizes.values():
        kept: list[Path] = []
        for path in group:
            same = next((k for k in kept if filecmp.cmp(k, path, shallow=False)), None)
            if same is None:
                kept.append(path)
            else:
                path.unlink()
                path.symlink_to(os.path.relpath(same, path.parent))
