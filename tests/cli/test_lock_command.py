"""``agentix lock`` tells a project's folder from the names of packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentix.cli.lock import _split

AGENTIX = str(Path(sys.executable).parent / "agentix")


@pytest.mark.parametrize(
    ("words", "path", "names"),
    [
        ([], ".", []),
        (["aiohttp"], ".", ["aiohttp"]),
        (["aiohttp", "jq"], ".", ["aiohttp", "jq"]),
        (["project"], "project", []),
        (["project", "jq"], "project", ["jq"]),
        (["./jq"], "jq", []),
        (["..", "jq"], "..", ["jq"]),
        (["package", "jq"], ".", ["package", "jq"]),
    ],
)
def test_with_upgrade_a_word_is_a_package_unless_it_is_a_project(
    words: list[str],
    path: str,
    names: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "project/pyproject.toml").write_text("")
    (tmp_path / "package").mkdir()
    assert _split(words, upgrade=True) == (Path(path), names)


@pytest.mark.parametrize("words", [["a", "b"], ["--check", "--upgrade"]])
def test_words_that_make_no_sense_are_wrong_usage(words: list[str]) -> None:
    result = subprocess.run([AGENTIX, "lock", *words], capture_output=True, text=True)
    assert result.returncode == 2
    assert "Usage: agentix lock" in result.stderr


def test_without_upgrade_the_only_word_is_the_folder() -> None:
    assert _split(["aiohttp"], upgrade=False) == (Path("aiohttp"), [])
