"""Whatever is written as TOML ends in tables or in one line, and soon."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from agentix.build.lock.plugins import declared_by
from agentix.build.project import read_tree
from agentix.build.toml import parse_toml
from agentix.errors import LockError, ProjectError

if TYPE_CHECKING:
    from pathlib import Path

ODD = {
    "a" + ".a" * 100_000 + " = 1": "a key in it has more than 64 parts",
    "[a" + ' . "b"' * 100_000 + "]": "a key in it has more than 64 parts",
    "x = { 'a'" + ".a" * 100 + " = 1 }": "a key in it has more than 64 parts",
    "x = " + "[" * 100_000: "it is nested too deeply",
    "x = " + "a" * 4_000_000: "Invalid value",
    '"' * 100_000: "Expected",
}


@pytest.mark.parametrize("text", ODD)
def test_what_would_take_all_memory_or_time_is_refused(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError, match=ODD[text]):
        parse_toml(text)


def test_what_people_write_is_read() -> None:
    text = 'a.b."c.d" = "1.2.3"\n[tool.x.y]\nlist = [' + '"b>=1.2.3", ' * 200 + "]\n"
    assert parse_toml(text) == tomllib.loads(text)


def test_projects_and_plugins_are_read_so(tmp_path: Path) -> None:
    for text in list(ODD)[:4]:
        (tmp_path / "pyproject.toml").write_text(text)
        with pytest.raises(ProjectError, match="is not valid TOML"):
            read_tree(tmp_path)
        with pytest.raises(LockError, match="is not valid TOML"):
            declared_by("p", ["p"], {"p/agentix.toml": text.encode()}.get, [])
