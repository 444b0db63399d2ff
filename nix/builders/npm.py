"""Install one tool from npm without running anything of it.

The packages are unpacked where Node looks for them. Native programs and libraries for this
platform are relocated; those for others, and static ones, are left as they were published.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn

import elf
import licences
import step
from patch import patch

if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
NODE = re.compile(rb"#!\s*(\S*/)?(env\s+(-S\s+)?([^\s=]+=\S+\s+)*)?node(js)?(?=\s|$)")
ORIGIN = ("$ORIGIN", "${ORIGIN}")
CHUNK = 1024 * 1024


def main() -> None:
    """Make the tool of this step."""
    config: dict[str, Any] = step.config()
    tree = step.out() / "lib"
    tree.mkdir(parents=True)
    for path, tarball in sorted(config["packages"].items()):
        unpack(Path(tarball), inside(tree, path), path.rpartition("node_modules/")[2])
    relocate(tree, config)
    own_interpreter(tree, config["node"])
    offer(step.out() / "bin", tree, config)
    licensed(step.out() / "licences.json", tree, config["packages"])


def inside(tree: Path, path: str) -> Path:
    """Return the place of the relative *path*, which must not lead out of *tree*."""
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or path.startswith("/"):
        step.fail(
            f"the lock has the path {path!r}, which leads out of the tool; run 'agentix lock'"
        )
    return tree.joinpath(*parts)


def unpack(tarball: Path, folder: Path, package: str) -> None:
    """Unpack the *tarball* of *package* as npm does: files only, below one folder of any name."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(tarball, "r|gz") as archive:
            for member in archive:
                archive.members = []  # type: ignore[attr-defined]  # else it keeps all of them
                if not member.isreg():
                    continue  # links are none of what a package may have, and npm leaves them out
                parts = PurePosixPath(member.name).parts
                if member.name.startswith("/") or ".." in parts or "\0" in member.name:
                    refuse(package, f"its member {member.name!r} leads out of it")
                if len(parts) < 2:
                    continue
                write(archive, member, folder.joinpath(*parts[1:]))
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        refuse(package, str(error))


def write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """Write a file; what was there before, from a member of the same name, is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    source = archive.extractfile(member)
    if source is None:
        return
    with path.open("xb") as file:
        shutil.copyfileobj(source, file, CHUNK)
    path.chmod(0o755 if member.mode & 0o111 else 0o644)


def refuse(package: str, reason: str) -> NoReturn:
    """End the build: the tarball cannot be used."""
    step.fail(f"the tarball of {package} cannot be used: {reason}; choose another release")


def files(tree: Path) -> Iterator[Path]:
    """Yield the files below *tree* in a fixed order."""
    for folder, folders, names in os.walk(tree):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names))


def relocate(tree: Path, config: dict[str, Any]) -> None:
    """Give native programs the toolchain's loader, and all that is linked its libraries."""
    libraries = f"{config['toolchain']}/lib"
    for path in files(tree):
        linked = elf.read(path)
        if linked is None or not ours(linked, config):
            continue
        kept = [folder for folder in linked.search if folder.startswith(ORIGIN)]
        search = ":".join(dict.fromkeys([*kept, libraries]))
        loader = f"{libraries}/{config['loader']}"
        try:
            patch(path, search, loader if linked.interpreter else None, config["patchelf"])
        except subprocess.CalledProcessError as error:
            step.fail(f"{path.relative_to(tree)} of {config['name']} cannot be relocated: {error}")


def ours(linked: elf.Elf, config: dict[str, Any]) -> bool:
    """Say whether the toolchain's loader is to load it: not what is static, or for others."""
    if linked.machine != MACHINES[config["platform"]] or not (linked.interpreter or linked.needed):
        return False
    if linked.interpreter is not None:
        return Path(linked.interpreter).name == str(config["loader"])
    return not any(name.startswith(("libc.musl", "ld-musl")) for name in linked.needed)


def own_interpreter(tree: Path, node: str | None) -> None:
    """Make what Node runs be run by the Node of the bundle, not by one that PATH may have."""
    for path in files(tree):
        with path.open("rb") as file:
            if file.read(2) != b"#!":
                continue
        first, newline, rest = path.read_bytes().partition(b"\n")
        found = NODE.match(first)
        if found is None or node is None:
            continue
        arguments = first[found.end() :].rstrip()  # a Windows author's line may end with \r
        path.write_bytes(b"#!" + f"{node}/bin/node".encode() + arguments + newline + rest)


def offer(folder: Path, tree: Path, config: dict[str, Any]) -> None:
    """Link the programs into *folder*, each made sure to be one."""
    folder.mkdir()
    for name, place in sorted(config["programs"].items()):
        path = inside(tree, place)
        if not path.is_file():
            step.fail(f"{config['name']} has no file {place}, the program {name} of the lock")
        linked = elf.read(path)
        if linked is not None and linked.interpreter is not None and not ours(linked, config):
            step.fail(
                f"the program {name} of {config['name']} is linked with {linked.interpreter}, and "
                "a bundle has glibc; choose a release with a program for glibc, or a static one"
            )
        path.chmod(0o755)
        (folder / name).symlink_to(os.path.relpath(path, folder))


def licensed(note: Path, tree: Path, packages: dict[str, str]) -> None:
    """Note how the packages are licensed, as each says itself."""
    found: dict[str, list[str]] = {}
    for path in packages:
        file = inside(tree, path) / "package.json"
        try:
            value = json.loads(file.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            refuse(path.rpartition("node_modules/")[2], f"its package.json: {error}")
        if isinstance(value, dict) and isinstance(value.get("name"), str):
            found[value["name"]] = licences.of_npm(value)
    note.write_text(json.dumps(found, sort_keys=True) + "\n")


if __name__ == "__main__":
    os.umask(0o022)
    main()
