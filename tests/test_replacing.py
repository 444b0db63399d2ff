"""A file is replaced in one step, or stays as it was."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from agentix.replacing import is_draft, replacing

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_there_stays_until_all_is_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    with replacing(file) as draft:
        draft.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_failure_leaves_the_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    def be_interrupted() -> None:
        with replacing(file) as draft:
            draft.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be_interrupted()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_two_at_once_do_not_meet(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with replacing(file) as one, replacing(file) as other:
        one.write_text("one")
        other.write_text("other")
    assert file.read_text() == "one"
    assert list(tmp_path.iterdir()) == [file]


def test_what_a_killed_process_left_goes_away_and_what_another_writes_stays(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file [1].json"
    killed, other = tmp_path / ".file [1].json.00.part", tmp_path / ".file [1].json.ff.part"
    killed.write_text("half")
    other.write_text("half")
    os.utime(killed, (0, 0))
    with replacing(file) as draft:
        draft.write_text("new")
        assert is_draft(draft.name)
    assert sorted(tmp_path.iterdir()) == sorted([file, other])
