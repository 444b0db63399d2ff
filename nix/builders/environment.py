"""Join installed wheels into one environment, as links, with an interpreter of its own.

A folder that one wheel alone has is one link; only folders that several share are made, and
merged, and those from which a library looks for libraries of other wheels. That keeps environments
quick to make, small to pack, and as fast to import from.
"""

from __future__ import annotations

import filecmp
import os
from pathlib import Path

import launcher
import step

# Below these every environment has folders of its own, whoever else has some.
REAL = ("bin", "libexec", "lib", "lib/python{python}", "lib/python{python}/site-packages")
PLACEHOLDER = b"#!python"


SPREAD = ".spread"


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
            if entry.name == SPREAD and folder == Path():
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
    real = {Path(folder.format(python=python)) for folder in REAL}
    spread = {
        site / name
        for wheel in wheels
        if (wheel / SPREAD).is_file()
        for name in (wheel / SPREAD).read_text().splitlines()
    }
    Union(root, real, spread).merge(Path(), wheels)
    (root / site).mkdir(parents=True, exist_ok=True)
    interpreter(root, Path(config["toolchain"]), python, config["busybox"])
    own_scripts(root / "bin", f"{root}/bin/python")
    if (root / site / "agentix_runtime/aside.py").is_file():
        # Sorted before the wheels' own: theirs may already start programs.
        (root / site / "00-agentix-aside.pth").write_text("import agentix_runtime.aside\n")


if __name__ == "__main__":
    os.umask(0o022)
    main()
