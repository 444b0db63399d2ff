from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from agentix.build.lock import Lock, LockedProject, Target, inputs
from agentix.build.lock.inputs import digest, is_current
from agentix.build.toolchain import toolchains_folder
from agentix.errors import ProjectError

if TYPE_CHECKING:
    from pathlib import Path

APP = """
[project]
name = "app"
version = "1"
description = "words"
dependencies = ["lib"]
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[tool.uv.sources]
lib = { path = "../lib" }
[tool.agentix]
system = ["jq"]
[tool.ruff]
line-length = 100
"""
LIB = """
[project]
name = "lib"
version = "2"
dependencies = ["idna"]
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    for name, text in (("app", APP), ("lib", LIB)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyproject.toml").write_text(text)
    return tmp_path / "app"


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Agentix were installed from an index: its own place then does not matter."""
    monkeypatch.setattr(inputs, "runtime_folder", lambda _: None)


def lock_of(app: Path) -> Lock:
    return Lock(
        name="app",
        version="1",
        inputs=digest(app, [".", "../lib"], "debian-12"),
        toolchain="debian-12",
        python="3.11",
        projects=(
            LockedProject(name="app", version="1", path=".", backend={}),
            LockedProject(name="lib", version="2", path="../lib", backend={}),
        ),
        platforms={"linux/amd64": Target(wheels=())},
        artifacts={},
    )


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_lock_is_current_until_something_changes_and_again_when_it_is_undone(app: Path) -> None:
    lock = lock_of(app)
    assert is_current(lock, app)
    edit(app / "pyproject.toml", '["lib"]', '["lib", "attrs"]')
    assert not is_current(lock, app)
    edit(app / "pyproject.toml", '["lib", "attrs"]', '["lib"]')
    assert is_current(lock, app)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("app", 'version = "1"', 'version = "1.1"'),
        ("app", '["hatchling"]', '["hatchling<2"]'),
        ("app", '["jq"]', '["jq", "git"]'),
        ("app", 'path = "../lib" }', 'path = "../lib", editable = true }'),
        ("app", 'system = ["jq"]', 'system = ["jq"]\nname = "other"'),
        ("lib", '["idna"]', '["idna<3"]'),
        ("lib", 'version = "2"', 'version = "2"\nrequires-python = ">=3.11"'),
        ("lib", 'version = "2"', 'version = "2"\noptional-dependencies = { x = ["attrs"] }'),
    ],
)
def test_what_the_resolution_depends_on_makes_it_stale(
    app: Path, file: str, old: str, new: str
) -> None:
    lock = lock_of(app)
    edit(app.parent / file / "pyproject.toml", old, new)
    assert not is_current(lock, app)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"python": "3.13"},
        {"projects": {0: {"name": "other"}}},
        {"projects": {1: {"name": "other"}}},
        {"projects": {1: {"version": "3"}}},
    ],
)
def test_a_lock_that_does_not_say_what_its_projects_say_is_stale(
    app: Path, change: dict[str, Any]
) -> None:
    lock = lock_of(app)
    projects = [
        project.model_copy(update=change.get("projects", {}).get(number, {}))
        for number, project in enumerate(lock.projects)
    ]
    assert not is_current(lock.model_copy(update=change | {"projects": projects}), app)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"words"', '"other words"'), ("100", "80"), ("[tool.ruff]", "# why\n[tool.ruff]")],
)
def test_what_it_does_not_depend_on_leaves_it_current(app: Path, old: str, new: str) -> None:
    lock = lock_of(app)
    edit(app / "pyproject.toml", old, new)
    (app / "code.py").write_text("x = 1")
    assert is_current(lock, app)


def test_a_uv_lock_counts_also_the_workspaces(app: Path) -> None:
    lock = lock_of(app)
    (app / "uv.lock").write_text("version = 1")
    assert not is_current(lock, app)
    (app / "uv.lock").unlink()
    (app.parent / "pyproject.toml").write_text('[tool.uv.workspace]\nmembers = ["app"]\n')
    in_workspace = lock_of(app)
    assert in_workspace.inputs != lock.inputs
    (app.parent / "uv.lock").write_text("version = 1")
    assert not is_current(in_workspace, app)


def test_all_of_a_project_counts_when_its_backend_decides(app: Path) -> None:
    lib = app.parent / "lib"
    edit(lib / "pyproject.toml", 'dependencies = ["idna"]', 'dynamic = ["dependencies"]')
    lock = lock_of(app)
    (lib / "setup.cfg").write_text("[options]\ninstall_requires = idna\n")
    assert not is_current(lock, app)


def test_a_dependency_that_moved_away_makes_it_stale(app: Path) -> None:
    lock = lock_of(app)
    (app.parent / "lib").rename(app.parent / "elsewhere")
    assert not is_current(lock, app)


def test_another_python_makes_it_stale(app: Path) -> None:
    lock = lock_of(app)
    assert is_current(lock, app, python="3.11")
    assert not is_current(lock, app, python="3.13")
    edit(app / "pyproject.toml", "[tool.agentix]", '[tool.agentix]\npython = "3.13"')
    assert not is_current(lock, app)


def test_a_project_that_cannot_be_read_is_an_error_rather_than_stale(app: Path) -> None:
    lock = lock_of(app)
    (app / "pyproject.toml").write_text("[project")
    with pytest.raises(ProjectError, match="not valid TOML"):
        is_current(lock, app)


def test_the_digest_does_not_depend_on_where_the_project_lies(app: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "a" / "much" / "longer path"
    for name in ("app", "lib"):
        shutil.copytree(app.parent / name, elsewhere / name)
    assert lock_of(elsewhere / "app") == lock_of(app)


def test_a_changed_toolchain_makes_it_stale(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_of(app)
    copied = tmp_path / "toolchains"
    shutil.copytree(toolchains_folder(), copied)
    monkeypatch.setattr(inputs, "toolchains_folder", lambda: copied)
    assert is_current(lock, app)
    edit(copied / "debian-12.json", '"glibc": "2.36"', '"glibc": "2.37"')
    assert not is_current(lock, app)


def test_asking_takes_milliseconds(app: Path) -> None:
    lock = lock_of(app)
    best = min(_timed(lock, app) for _ in range(5))
    assert best < 0.05


def _timed(lock: Lock, app: Path) -> float:
    start = time.perf_counter()
    assert is_current(lock, app)
    return time.perf_counter() - start
