"""`agentix build` and a flake take the same files of a project."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from agentix import nix
from agentix.build.sources import source_files

pytestmark = pytest.mark.nix
NIX = Path(__file__).parents[2] / "nix"

# Where a file lies, whether git tracks it, and whether it belongs to the source.
TABLE = [
    ("pyproject.toml", True, True),
    ("build/__init__.py", True, True),
    ("build/made.py", False, False),
    ("dist/tracked.txt", True, True),
    ("dist/app.whl", False, False),
    ("result", True, True),
    ("result-dev", False, False),
    (".venv/pyvenv.cfg", True, True),
    (".venv/bin/python", False, False),
    ("src/app/build/x.py", True, True),
    ("src/app/__pycache__/kept.pyc", True, True),
    ("src/app/__pycache__/x.pyc", False, False),
    ("bundle.lock", True, False),
]


def found(root: Path) -> Path:
    """Return the store path of the source that a flake in *root* takes."""
    store = nix.find()
    expression = (
        f'(import {NIX} {{ system = "x86_64-linux"; }}).sources.found '
        f'{{ root = {root}; projects = [ {{ name = "app"; path = "."; }} ]; }}'
    )
    command = [str(store.programs / "nix-instantiate"), *store.options(), "--read-write-mode"]
    done = subprocess.run(
        [*command, "--eval", "--strict", "--json", "--expr", expression],
        env=store.environment(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    return store.real(json.loads(done.stdout)["app"])


def test_what_git_tracks_belongs_and_what_builds_leave_does_not_in_both(tmp_path: Path) -> None:
    project, flake = tmp_path / "project", tmp_path / "flake"
    for name, _, _ in TABLE:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=project, check=True, capture_output=True, timeout=60)

    git("init", "--quiet")
    git("add", "--force", *(name for name, tracked, _ in TABLE if tracked))
    git("checkout-index", "--all", f"--prefix={flake}/")  # what Nix takes of a repository
    expected = sorted(name for name, _, belongs in TABLE if belongs)
    assert source_files(project) == expected
    source = found(flake)
    files = (file for file in source.rglob("*") if file.is_file())
    assert sorted(file.relative_to(source).as_posix() for file in files) == expected
