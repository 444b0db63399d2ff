"""``agentix init``: a project that builds at once, made whole or not at all, over nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from agentix.build.initial import make_project
from agentix.build.project import read_project
from agentix.errors import ProjectError

AGENTIX = Path(sys.executable).with_name("agentix")


def run(
    *words: str | Path, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    path = f"{AGENTIX.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=os.environ | {"PATH": path} | (env or {}),
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.nix
@pytest.mark.bubblewrap
@pytest.mark.slow
def test_what_it_says_to_do_next_builds_deploys_and_calls(tmp_path: Path) -> None:
    made = run("agentix", "init", "my words", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.split("\n")[:3] == [
        f"my words/{name}" for name in ("pyproject.toml", "my_words.py", ".gitignore")
    ]
    commands, _, program = made.stderr.partition("\nand from Python, where my_words can be ")
    for command in commands.partition("next:\n")[2].splitlines():
        done = run("sh", "-c", command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    code = textwrap.dedent(program.partition("\n")[2])
    called = run(sys.executable, "-c", code, cwd=tmp_path, env={"PYTHONPATH": "my words"})
    assert called.stdout.startswith("Hello, sandbox! This is Python 3."), called.stderr
    assert run("git", "init", "-q", cwd=tmp_path / "my words").returncode == 0
    listed = run("git", "ls-files", "-o", "--exclude-standard", cwd=tmp_path / "my words").stdout
    assert listed.split() == [".gitignore", "bundle.lock", "my_words.py", "pyproject.toml"]


def test_json_says_what_was_made(tmp_path: Path) -> None:
    done = run("agentix", "init", "--format", "json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert (document["name"], done.stderr) == (tmp_path.name.replace("_", "-"), "")
    assert {path.name for path in tmp_path.iterdir()} == set(document["files"])


def test_without_a_folder_it_is_this_one_and_one_that_is_missing_is_made(tmp_path: Path) -> None:
    assert make_project(tmp_path / "a/b").name == "b"
    assert read_project(tmp_path / "a/b").name == "b"


@pytest.mark.parametrize(
    ("folder", "name", "module"),
    [
        ("Äpfel & Birnen 2", "pfel-birnen-2", "pfel_birnen_2"),
        ("2048", "2048", "_2048"),
        ("random", "random", "random_project"),
        ("class", "class", "class_project"),
        ("__x__", "x", "x"),
    ],
)
def test_any_folder_gives_a_name_and_a_module_that_can_be_imported(
    tmp_path: Path, folder: str, name: str, module: str
) -> None:
    made = make_project(tmp_path / folder)
    assert (made.name, made.module) == (name, module)
    tables = tomllib.loads((tmp_path / folder / "pyproject.toml").read_text())
    included = tables["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert included == [f"{module}.py"]


@pytest.mark.parametrize("folder", ["agentix", "---", "x" * 200])
def test_a_folder_that_gives_no_name_is_refused(tmp_path: Path, folder: str) -> None:
    with pytest.raises(ProjectError, match="no project can be called after the folder"):
        make_project(tmp_path / folder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["pyproject.toml", "task.py", "task"])
def test_nothing_that_is_there_is_overwritten(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / name).symlink_to("nowhere")
    done = run("agentix", "init", "task", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"agentix: task/{name} is there already; choose another folder\n"
    assert [path.name for path in folder.iterdir()] == [name]


def test_a_link_that_leads_to_itself_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ProjectError, match=r"cannot make a project in .*loop: File exists"):
        make_project(tmp_path / "loop")


def test_a_gitignore_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine\n")
    assert ".gitignore" not in make_project(tmp_path).files
    assert (tmp_path / ".gitignore").read_text() == "mine\n"


def test_what_cannot_be_made_whole_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.open

    def full(self: Path, mode: str = "r", encoding: str | None = None) -> object:
        if self.name == ".gitignore":
            raise OSError(28, "No space left on device")
        return real(self, mode, encoding=encoding)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(ProjectError, match="No space left on device"):
        make_project(tmp_path / "deep/task")
    assert list(tmp_path.iterdir()) == []
