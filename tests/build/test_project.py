from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentix.build.project import read_project, read_tree, workspace_root
from agentix.errors import ProjectError

GOOD = """
[project]
name = "My.Project"
version = "1.2"
requires-python = ">=3.11"
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[tool.agentix]
python = "3.11"
system = ["jq"]
[tool.other]
anything = 1
"""


def put(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_an_ordinary_project_is_read(tmp_path: Path) -> None:
    project = read_project(put(tmp_path, GOOD))
    assert project.name == "my-project"
    assert project.version == "1.2"
    assert project.backend.requires == ("hatchling",)
    assert project.settings.system == ["jq"]
    assert read_project(put(tmp_path, GOOD.replace('"1.2"', '"1.2-beta"'))).version == "1.2b0"
    assert project.settings.python == "3.11"
    assert "3.10" not in project.requires_python
    assert project.dynamic == frozenset()


def test_a_project_that_names_no_backend_gets_setuptools(tmp_path: Path) -> None:
    project = read_project(put(tmp_path, '[project]\nname = "x"\nversion = "1"\n'))
    assert project.backend.entry == "setuptools.build_meta:__legacy__"
    assert any(r.startswith("setuptools") for r in project.backend.requires)


def test_a_version_left_to_the_backend_is_not_made_up(tmp_path: Path) -> None:
    project = read_project(put(tmp_path, '[project]\nname = "x"\ndynamic = ["version"]\n'))
    assert project.version is None
    assert project.dynamic == {"version"}


def test_a_legacy_tree_can_be_a_dependency_but_not_the_project(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("")
    tree = read_tree(tmp_path)
    assert tree.name is None
    assert tree.version is None
    with pytest.raises(ProjectError, match="not a Python project"):
        read_project(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no [project] table"),
        ('[tool.poetry]\nname = "x"\n', "no [project] table"),
        ("[project", "not valid TOML"),
        ("project = 3\n", "project = 3: it must be a table"),
        ("[project]\nversion = '1'\n", "[project] name"),
        ('[project]\nname = "x"\n', "no version"),
        ('[project]\nname = "../x"\nversion = "1"\n', "[project] name"),
        ('[project]\nname = "x"\nversion = "one"\n', "'one' is not a version"),
        ('[project]\nname = "x"\nversion = "1"\nrequires-python = "three"\n', "'three'"),
        ('[project]\nname = "x"\nversion = "1"\n[build-system]\n', "[build-system] requires"),
        (GOOD.replace("system =", "sistem ="), "[tool.agentix] has no setting 'sistem'"),
        (GOOD.replace('"3.11"\nsystem', "3.11\nsystem"), "[tool.agentix] python = 3.11"),
        (GOOD.replace('"3.11"\nsystem', '"3.11.2"\nsystem'), "[tool.agentix] python = '3.11.2'"),
        (GOOD.replace('["jq"]', '"jq"'), "[tool.agentix] system = 'jq'"),
        (GOOD.replace('["jq"]', '["jq;rm"]'), "[tool.agentix] system.0 = 'jq;rm'"),
        (GOOD + '[tool.agentix.nix]\nfile = "x"\n', "[tool.agentix] nix = {'file': 'x'}"),
        (GOOD.replace("system =", 'nix = "../x.nix"\nsystem ='), "nix = '../x.nix': "),
        (GOOD.replace("system =", 'nix = "a.txt"\nsystem ='), "must be a Nix file"),
        (GOOD.replace("system =", 'nix = "a.nix"\nsystem ='), "there is no such file"),
        (GOOD.replace("system =", 'npm = ["a"]\nsystem ='), 'one version, such as "prettier@3'),
        (GOOD.replace("system =", 'npm = ["a@latest"]\nsystem ='), "npm.0 = 'a@latest'"),
        (GOOD.replace("system =", 'name = "../../victim"\nsystem ='), "[tool.agentix] name"),
        (GOOD.replace("system =", f'name = "{"a" * 129}"\nsystem ='), "[tool.agentix] name"),
        (f'[project]\nname = "{"a" * 129}"\nversion = "1"\n', "[project] name has more than 128"),
    ],
)
def test_what_cannot_be_used_is_one_line_that_names_the_file_and_the_key(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(ProjectError) as caught:
        read_project(put(tmp_path, text))
    message = str(caught.value)
    assert says in message
    assert str(tmp_path / "pyproject.toml") in message
    assert "\n" not in message


def test_a_folder_that_is_not_a_project_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=r"has no pyproject\.toml"):
        read_project(tmp_path)
    with pytest.raises(ProjectError, match="is not a folder"):
        read_project(tmp_path / "gone")


def test_a_folder_whose_name_no_plan_can_hold_is_refused(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    with pytest.raises(ProjectError, match=r"\\xff' is not UTF-8"):
        read_project(put(folder, GOOD))


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b'[project]\nname = "\xff"\n')
    with pytest.raises(ProjectError, match="not valid TOML"):
        read_project(tmp_path)


def test_the_workspace_of_a_member_is_found_and_of_nobody_else(tmp_path: Path) -> None:
    top = '[tool.uv.workspace]\nmembers = ["packages/*"]\nexclude = ["packages/out"]\n'
    put(tmp_path, top)
    member = put(tmp_path / "packages" / "a", GOOD)
    excluded = put(tmp_path / "packages" / "out", GOOD)
    deeper = put(tmp_path / "packages" / "a" / "examples", GOOD)
    assert workspace_root(tmp_path) == tmp_path
    assert workspace_root(member) == tmp_path
    assert workspace_root(excluded) == excluded
    assert workspace_root(deeper) == deeper


@pytest.mark.parametrize("sources", ["[1]", "3", "{ x = 3 }", "{ x = ['y'] }"])
def test_sources_that_are_not_as_uv_wants_them_are_left_for_uv_to_refuse(
    tmp_path: Path, sources: str
) -> None:
    project = read_project(put(tmp_path, f"{GOOD}[tool.uv]\nsources = {sources}\n"))
    assert project.uv_sources("x") == []
