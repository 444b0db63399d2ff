"""Relocate the programs of Debian packages, with all that they need, into one prefix.

The file system of the packages is kept as it is, below ``root`` and with ``/usr`` merged; its
programs and libraries find one another, and the toolchain's C library, by DT_RPATH, and their
data by paths edited in them (paths.py). ``bin`` has the declared packages' programs, ``alias``
what a bundle links to below /nix/runtime, and ``launch.json`` what its launchers do first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import alternatives
import compiler
import elf
import licences
import needs
import paths
import step
from scripts import Interpreters
from tree import files, inside, merge_usr, move, own_links, programs, prune, share


@dataclass
class Unpacked:
    """The packages in one file system, and which programs, files and second names each had."""

    tree: Path
    programs: dict[str, dict[str, Path]] = field(default_factory=dict)
    files: dict[str, list[Path]] = field(default_factory=dict)
    names: dict[str, list[alternatives.Alternative]] = field(default_factory=dict)


def main() -> None:
    """Make the tools of this step."""
    config: dict[str, Any] = step.config()
    root, table = step.out(), needs.load()
    tree, toolchain = root / "root", Path(config["toolchain"])
    multiarch, loader = config["multiarch"], config["loader"]
    root.mkdir()
    unpacked = unpack(config, tree, table)
    prepare(unpacked, toolchain, table)
    paths.complete(toolchain / "lib", tree, multiarch, table)
    rewriting = paths.Rewriting(tree, multiarch, table)
    paths.adopt(toolchain / "lib", tree, multiarch, rewriting.names_ours)
    relocate(tree, config)
    rewriting.run()
    interpreters = Interpreters(tree, toolchain, config["python"], Path(config["shell"]))
    interpreters.own()
    compiler.settle(tree, toolchain, multiarch, loader)
    refuse_useless(unpacked, config["declared"], rewriting.reached)
    for name, target in sorted(rewriting.aliases.items()):
        (root / "alias").mkdir(exist_ok=True)
        (root / "alias" / name).symlink_to(target)
    (root / "bin").mkdir()
    launches: dict[str, list[str]] = {}
    for name, program in sorted(offered(unpacked, config["declared"]).items()):
        (root / "bin" / name).symlink_to(program)
        if lines := table.launch(name, root=str(tree), shell=str(interpreters.shell())):
            launches[name] = lines
    (root / "launch.json").write_text(json.dumps(launches, sort_keys=True) + "\n")


def unpack(config: dict[str, Any], tree: Path, table: needs.Needs) -> Unpacked:
    """Unpack the packages: the declared ones first, since of one file the first is taken."""
    busybox = f"{config['busybox']}/bin/busybox"
    order = {name: index for index, name in enumerate(config["declared"])}
    packages = {package["package"]: package["archive"] for package in config["packages"]}
    unpacked = Unpacked(tree)
    licensed = licences.Debian(step.toolchain(Path(config["toolchain"]))["licences"])
    part, control = tree.with_name("part"), tree.with_name("control")
    for name in sorted(packages, key=lambda name: (order.get(name, len(order)), name)):
        for option, folder in (("-x", part), ("-e", control)):
            folder.mkdir()
            subprocess.run([busybox, "dpkg-deb", option, packages[name], str(folder)], check=True)
        merge_usr(part)
        licensed.add(part, name)
        prune(part, table.drops)
        unpacked.programs[name] = programs(part)
        unpacked.files[name] = [path.relative_to(part) for path in files(part)]
        unpacked.names[name] = alternatives.read(control / "postinst")
        move(part, tree)
        shutil.rmtree(part)
        shutil.rmtree(control)
    licensed.write(tree.with_name("licences.json"))
    return unpacked


def prepare(unpacked: Unpacked, toolchain: Path, table: needs.Needs) -> None:
    """Complete what maintainer scripts, the toolchain and the table add to the files."""
    tree = unpacked.tree
    certificates = tree / "etc/ssl/certs"
    shutil.rmtree(certificates, ignore_errors=True)
    certificates.parent.mkdir(parents=True, exist_ok=True)
    certificates.symlink_to(toolchain / "etc/ssl/certs")
    own_links(tree)
    for name in alternatives.ranked(a for found in unpacked.names.values() for a in found):
        target, link = inside(tree, name.path), tree / name.link.lstrip("/").removeprefix("usr/")
        if target is not None and link.parent.is_dir() and not os.path.lexists(link):
            link.symlink_to(os.path.relpath(target, link.parent))
    for at, to in table.links.items():
        if (tree / to).exists() and not (tree / at).exists():
            (tree / at).parent.mkdir(parents=True, exist_ok=True)
            (tree / at).symlink_to(os.path.relpath(tree / to, (tree / at).parent))
    share(tree)


def relocate(tree: Path, config: dict[str, Any]) -> None:
    """Give every program the folders of libraries that are here, also for the libraries it loads.

    A library is left as it was published where that will do. It has to say more itself where it
    names folders, since those would go first, and where another program loads it: Python's.
    """
    toolchain, loader = Path(config["toolchain"]), config["loader"]
    patchelf = f"{config['patchelf']}/bin/patchelf"
    common = [str(tree / "lib" / config["multiarch"]), str(tree / "lib"), f"{toolchain}/lib"]
    jobs: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in files(tree):
        linked = elf.read(path)
        if linked is None or not (
            linked.interpreter or linked.search or path.is_relative_to(tree / "lib/python3")
        ):
            continue
        # Private folders that a file names (/usr/lib/x86_64-linux-gnu/samba) are here as well.
        private = [
            folder if folder.startswith("$") else str(inside(tree, folder) or "")
            for folder in linked.search
            if folder.startswith(("$", "/"))
        ]
        search = ":".join(dict.fromkeys([*filter(None, private), *common]))
        command = ["--force-rpath", "--set-rpath", search]
        if linked.interpreter is not None:
            command += ["--set-interpreter", f"{toolchain}/lib/{loader}"]
        path.chmod(path.stat().st_mode | 0o200)
        jobs[tuple(command)].append(str(path))
    for arguments, edited in jobs.items():
        subprocess.run([patchelf, *arguments, *edited], check=True)


def offered(unpacked: Unpacked, declared: list[str]) -> dict[str, Path]:
    """Return the programs by name: real ones before second names, else as they are declared."""
    tree = unpacked.tree
    found: dict[str, Path] = {}
    whose: dict[str, str] = {}
    for package in declared:
        for name, place in unpacked.programs.get(package, {}).items():
            if not (tree / place).exists():
                continue
            if name in found:
                if whose[name] != package:
                    step.warn(
                        f"{name} is a program of {whose[name]} and of {package}; "
                        f"taking that of {whose[name]}, which is declared first"
                    )
                continue
            found[name], whose[name] = tree / place, package
    names = [name for package in declared for name in unpacked.names.get(package, ())]
    for second in alternatives.ranked(names):
        folder, _, name = second.link.rpartition("/")
        target = inside(tree, second.path)
        if folder.endswith(("bin", "games")) and target is not None and target.exists():
            found.setdefault(name, target)
    return found


def refuse_useless(unpacked: Unpacked, declared: list[str], reached: set[Path]) -> None:
    """End the build when a declared package has nothing that anybody would find."""
    tree = unpacked.tree
    known = {path for path in reached if path.is_relative_to(tree)}
    folders = {tree / "lib/python3/dist-packages"} if (tree / "libexec/python").is_dir() else set()
    compiles = (tree / "lib/gcc").is_dir()
    for package in declared:
        if unpacked.programs.get(package):
            continue
        own = [tree / place for place in unpacked.files.get(package, ())]
        if any(path.parent.parent == tree / "lib" and ".so" in path.name for path in own):
            continue  # wheels may lack it, see linked.py
        if compiles and not own:
            continue  # it only stands for others
        if compiles and any(path.parts[len(tree.parts)] in {"include", "lib"} for path in own):
            continue
        if not any(known.intersection([p, *p.parents]) or folders & {*p.parents} for p in own):
            step.fail(
                f"{package} has no programs, and none of the declared packages' programs uses its "
                "files; declare the package that has the program"
            )


if __name__ == "__main__":
    os.umask(0o022)
    main()
