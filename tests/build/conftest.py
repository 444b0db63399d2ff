from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tiny_job import write_project

from agentix.build.build import build_bundle

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has been locked and built once, with a runtime that nobody is editing."""
    folder = tmp_path_factory.mktemp("shelf")
    clone = ["git", "clone", "--quiet", str(REPOSITORY), str(folder / "agentix")]
    subprocess.run(clone, check=True)
    root = write_project(folder / "project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTIX_CACHE_DIR", str(folder / "cache"))
        patch.delenv("CI", raising=False)
        build_bundle(root)
    return folder


@pytest.fixture
def root(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that project, locked, with a cache of its own."""
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CI", raising=False)
    copy = shelf / tmp_path.name  # as far from the runtime as the original
    shutil.copytree(shelf / "project", copy, ignore=shutil.ignore_patterns("dist"))
    return copy
