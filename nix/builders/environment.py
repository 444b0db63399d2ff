"""Join installed wheels into one environment, as links, with an interpreter of its own.

A folder that one wheel alone has is one link; only folders that several share are made, and
merged, and those from which a library looks for libraries of other wheels. That keeps environments
quick to make, small to pack, and as fast to import from.
"""

from __future__ import annotations

import filecmp
import json
import os
from pathlib import Path
from typing import Any

import launcher
import step

# Below these every environment has folders of its own, whoever else has some.
REAL = ("bin", "libexec", "lib", "lib/python{python}", "lib/python{python}/site-packages")
PLACEHOLDER = b"#!python"
# What is lacking all the same, for whoever built this.
LACKING = "lacking.json"
ASIDE = "00-agentix-aside.pth"
SPREAD = ".spread"
LIBRARIES = ".libraries.json"
NOTES = (SPREAD, LIBRARIES, LACKING)  # of ours, whatever a wheel brings under their names


class Union:
    """A tree of links below *root*; the folders *real* and all below *spread* are not links."""

    def __init__(self, root: Path, real: set[Path], spread: set[Path]) -> None:
        self._root = root
        self._real = real
        self._spread = spread

    def merge(self, folder: Path, sources: list[Path], *, spread: bool = False) -> None:
        """Make *folder* of the union from the folders *sources*, the last of which wins."""
        here = self._root / folder
        here.mkdir(exist_ok=True)
        owners: dict[str, list[Path]] = {}
        for source in sources:
            for path in source.iterdir():
                owners.setdefault(path.name, []).append(path)
        modules = {name: paths[-1].parent for name, paths in owners.items()}
        for name, paths in sorted(owners.items()):
            entry = folder / name
            wide = spread or entry in self._spread
            real = wide or entry in self._real or len(paths) > 1
            if entry.name in NOTES and folder == Path():
                continue
            if name == "__pycache__" and len(paths) > 1:
                self._byte_code(entry, paths, modules)
            elif real and all(map(_is_folder, paths)):
                self.merge(entry, paths, spread=wide)
            else:
                self._link(entry, paths)

    def _link(self, entry: Path, paths: list[Path]) -> None:
        chosen = paths[-1]
        if any(not _same(path, chosen) for path in paths[:-1]):
            names = ", ".join(_wheel(path, entry) for path in paths)
            step.warn(f"{entry} is in {names}, and differs; taking {_wheel(chosen, entry)}'s")
        (self._root / entry).symlink_to(chosen)

    def _byte_code(self, entry: Path, paths: list[Path], modules: dict[str, Path]) -> None:
        # Byte code is not checked against its source, so it has to come from the same wheel.
        (self._root / entry).mkdir()
        for path in paths:
            for file in path.iterdir():
                if modules.get(f"{file.name.split('.')[0]}.py") == path.parent:
                    (self._root / entry / file.name).symlink_to(file)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _same(one: Path, other: Path) -> bool:
    if not (one.is_file() and other.is_file()):
        return False
    return filecmp.cmp(one, other, shallow=False)


def _wheel(path: Path, entry: Path) -> str:
    """Return the name of the wheel, from its store path, that *path* lies in."""
    root = path.parents[len(entry.parts) - 1]
    return root.name.partition("-")[2]


def libraries(wheel: Path) -> dict[str, Any]:
    """Return what an installed *wheel* notes of the libraries that it lacks and offers."""
    file = wheel / LIBRARIES
    found: dict[str, Any] = {"lacks": {}, "offers": []}
    return found | (json.loads(file.read_bytes()) if file.is_file() else {})


def lacks(wheels: list[Path]) -> list[dict[str, str]]:
    """Return which libraries none of *wheels* has, though a file of one of them needs it."""
    noted = {wheel: libraries(wheel) for wheel in wheels}
    offered = {name for found in noted.values() for name in found["offers"]}
    return [
        {"wheel": wheel.name.partition("-")[2], "file": file, "library": name}
        for wheel, found in noted.items()
        for file, names in found["lacks"].items()
        for name in names
        if name not in offered
    ]


def linked(folder: Path, wheel: Path) -> Path:
    """Return where in *folder* the *wheel* is, if the system's libraries were added to it.

    It is not called quite like it: a name with the hash of a store path refers to that path.
    """
    return folder / f"linked-{wheel.name.partition('-')[2]}"


def own_scripts(folder: Path, interpreter: str) -> None:
    """Replace links to scripts for "some Python" by scripts for *interpreter*."""
    for path in sorted(folder.iterdir()):
        if not path.is_file():
            continue
        with path.open("rb") as file:
            if file.read(len(PLACEHOLDER)) != PLACEHOLDER:
                continue
        first, _, rest = path.read_bytes().partition(b"\n")
        # "#!python" or "#!pythonw", and whatever arguments follow it.
        arguments = first[2:].split()[1:]
        path.unlink()
        path.write_bytes(b" ".join([b"#!" + interpreter.encode(), *arguments]) + b"\n" + rest)
        path.chmod(0o755)


def interpreter(root: Path, toolchain: Path, python: str, busybox: str) -> None:
    """Make *root* a virtual environment of the toolchain's Python."""
    (root / "libexec").mkdir(exist_ok=True)
    _replace(root / "libexec/python3", toolchain / "bin/python3")
    (root / "bin").mkdir(exist_ok=True)
    program = f"{root}/libexec/python3"
    script = launcher.python(busybox, [program, "-E", "-s"])
    for name in ("python", "python3", f"python{python}"):
        path = root / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(script)
        path.chmod(0o755)
    version = step.toolchain(toolchain)["python"]
    (root / "pyvenv.cfg").unlink(missing_ok=True)
    (root / "pyvenv.cfg").write_text(
        f"home = {toolchain}/bin\ninclude-system-site-packages = false\nversion = {version}\n"
    )


def _replace(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def main() -> None:
    """Make the environment of this step."""
    config = step.config()
    root, python = step.out(), config["python"]
    site = Path(f"lib/python{python}/site-packages")
    wheels = [Path(wheel) for wheel in config["wheels"]]
    if config["linked"] is not None:
        others = [linked(Path(config["linked"]), wheel) for wheel in wheels]
        wheels = [o if o.is_dir() else w for o, w in zip(others, wheels, strict=True)]
    real = {Path(folder.format(python=python)) for folder in REAL}
    spread = {
        site / name
        for wheel in wheels
        if (wheel / SPREAD).is_file()
        for name in (wheel / SPREAD).read_text().splitlines()
    }
    Union(root, real, spread).merge(Path(), wheels)
    (root / site).mkdir(parents=True, exist_ok=True)
    if lacking := lacks(wheels):
        (root / LACKING).write_text(json.dumps(lacking, indent=1) + "\n")
    interpreter(root, Path(config["toolchain"]), python, config["busybox"])
    own_scripts(root / "bin", f"{root}/bin/python")
    if (root / site / "agentix_runtime/aside.py").is_file():
        # Sorted before the wheels' own: theirs may already start programs.
        (root / site / ASIDE).unlink(missing_ok=True)
        (root / site / ASIDE).write_text("import agentix_runtime.aside\n")


if __name__ == "__main__":
    os.umask(0o022)
    main()
