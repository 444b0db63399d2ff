from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentix.build.lock.compiled import is_compiled, is_rust
from agentix.build.project import read_tree

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.build.project import Project


def tree(folder: Path, *requires: str, setup: str | None = None, more: str = "") -> Project:
    backend = f"[build-system]\nrequires = {list(requires)!r}\nbuild-backend = 'x'\n"
    (folder / "pyproject.toml").write_text(backend + more)
    if setup is not None:
        (folder / "setup.py").write_text(setup)
    return read_tree(folder)


@pytest.mark.parametrize(
    ("requires", "setup", "more"),
    [
        (["Cython>=3"], None, ""),
        (["scikit_build_core"], None, ""),
        (["setuptools"], "setup(ext_modules=[x])", ""),
        (["setuptools"], "from setuptools import Extension", ""),
        (["setuptools"], "setup(cffi_modules=['build.py:ffi'])", ""),
        (["setuptools"], None, "[[tool.setuptools.ext-modules]]\nname = 'a'\nsources = ['a.c']\n"),
        (["hatchling"], None, "[tool.agentix]\nbuild = ['libyaml-dev']\n"),
    ],
)
def test_what_asks_for_a_compiler_gets_one(
    tmp_path: Path, requires: list[str], setup: str | None, more: str
) -> None:
    assert is_compiled(tree(tmp_path, *requires, setup=setup, more=more))


def test_what_does_not_ask_gets_none(tmp_path: Path) -> None:
    assert not is_compiled(tree(tmp_path, "setuptools", setup="setup(name='a')"))
    assert not is_compiled(tree(tmp_path, "hatchling", "setuptools-scm"))
    (tmp_path / "setup.py").unlink()
    assert not is_compiled(tree(tmp_path, "hatchling"), ["a/data.c"])
    for odd in ("tool = 1", "tool.setuptools = 1"):
        (tmp_path / "pyproject.toml").write_text(odd)
        assert not is_compiled(read_tree(tmp_path))


def test_source_code_of_somebody_else_says_it_too(tmp_path: Path) -> None:
    project = tree(tmp_path, "setuptools", setup="import hidden; hidden.setup()")
    assert is_compiled(project, ["a/hidden.py", "a/src/speedups.c"])
    assert not is_compiled(project, ["a/hidden.py", "a/include/a.h"])


@pytest.mark.parametrize(("requires", "rust"), [("maturin>=1", True), ("setuptools", False)])
def test_rust_is_told_from_other_languages(tmp_path: Path, requires: str, rust: bool) -> None:
    assert is_rust(tree(tmp_path, requires)) == rust
