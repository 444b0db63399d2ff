"""A project of one module, small enough to be built again and again, and what came of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentix.build.built import BuiltBundle

AGENTIX = [str(Path(sys.executable).parent / "agentix")]


def write_project(root: Path, name: str = "tiny-job") -> Path:
    module = name.replace("-", "_")
    root.mkdir(parents=True, exist_ok=True)
    (root / "pyproject.toml").write_text(
        f"""[project]
name = "{name}"
version = "1.0"
requires-python = ">=3.11"

[build-system]
requires = ["hatchling>=1.27"]
build-backend = "backend"
backend-path = ["."]

[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]

[tool.agentix]
python = "3.11"

[tool.uv.sources]
agentix-runtime = {{ path = "../agentix/runtime" }}
"""
    )
    (root / "backend.py").write_text("from hatchling.build import *\n")
    (root / f"{module}.py").write_text("def answer():\n    return 42\n")
    (root / ".gitignore").write_text(".env\ndist/\n")
    (root / ".env").write_text("PASSWORD=do-not-ship\n")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


def tar_text(bundle: BuiltBundle) -> bytes:
    return bundle.path.read_bytes()


def snapshot(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, path.lstat().st_size)
        for path in sorted(folder.rglob("*"))
        if ".git" not in path.parts
    }
