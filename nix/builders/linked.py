"""Point wheels that lack libraries at those of system packages that have them.

Such a wheel is a copy of which the files that lack one look into their folders, too, and last.
Links would not do: packages look for their neighbours from where their modules really are. A wheel
that lacks nothing, or nothing that is there, is left out.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import elf
import environment
import step
from patch import patch


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
        root = environment.linked(step.out(), wheel)
        shutil.copytree(wheel, root, symlinks=True)
        for folder, _, _ in os.walk(root):
            Path(folder).chmod(0o755)
        search = [str(folder) for folder in folders if folder.is_dir()]
        for file in found:
            extend(root / file, search, config["patchelf"])
        # What these libraries need themselves is found by the same DT_RPATH.
        rest = {
            file: [n for n in names if n not in there] for file, names in noted["lacks"].items()
        }
        noted["lacks"] = {file: names for file, names in rest.items() if names}
        (root / environment.LIBRARIES).unlink()
        (root / environment.LIBRARIES).write_text(json.dumps(noted, indent=1) + "\n")


def extend(path: Path, folders: list[str], patchelf: str) -> None:
    """Have the library or program *path* look into *folders*, too."""
    mode = path.stat().st_mode
    path.chmod(mode | 0o200)
    linked = elf.read(path)
    if linked is not None:
        search = ":".join(dict.fromkeys([*linked.search, *folders]))
        patch(path, search, linked.interpreter, patchelf)
    path.chmod(mode)


if __name__ == "__main__":
    os.umask(0o022)
    main()
