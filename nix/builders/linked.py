"""Point wheels that lack libraries at those of system packages that have them.

Only a file that lacks one is a copy, which looks into their folders last; all else of its wheel is
links. A wheel that lacks nothing, or nothing that is there, is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import elf
import environment
import step


def main() -> None:
    """Make the folder of this step: a prefix for each wheel that is changed, named like it."""
    config: dict[str, Any] = step.config()
    step.out().mkdir()
    folders = [
        Path(config["tools"], "root", place) for place in (f"lib/{config['multiarch']}", "lib")
    ]
    there = {path.name for folder in folders if folder.is_dir() for path in folder.iterdir()}
    for wheel in map(Path, config["wheels"]):
        noted = environment.libraries(wheel)
        found = {
            file: names for file, names in noted["lacks"].items() if not there.isdisjoint(names)
        }
        if not found:
            continue
        root = step.out() / wheel.name
        environment.Union(root, set(), set()).merge(Path(), [wheel], spread=True)
        search = [str(folder) for folder in folders if folder.is_dir()]
        for file in found:
            extend(root / file, search, config["patchelf"])
        # What these libraries need themselves is found by the same DT_RPATH.
        rest = {
            file: [n for n in names if n not in there] for file, names in noted["lacks"].items()
        }
        noted["lacks"] = {file: names for file, names in rest.items() if names}
        (root / environment.LIBRARIES).write_text(json.dumps(noted, indent=1) + "\n")
        if (wheel / environment.SPREAD).is_file():
            shutil.copyfile(wheel / environment.SPREAD, root / environment.SPREAD)


def extend(path: Path, folders: list[str], patchelf: str) -> None:
    """Make the link *path* a file of its own that looks into *folders*, too."""
    original = path.resolve()
    path.unlink()
    shutil.copyfile(original, path)
    linked = elf.read(path)
    search = dict.fromkeys([*(linked.search if linked else ()), *folders])
    command = [f"{patchelf}/bin/patchelf", "--force-rpath", "--set-rpath", ":".join(search)]
    subprocess.run([*command, str(path)], check=True)
    path.chmod(original.stat().st_mode)


if __name__ == "__main__":
    os.umask(0o022)
    main()
