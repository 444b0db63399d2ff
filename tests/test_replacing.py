"""A file is replaced in one step, or stays as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentix.replacing import replacing

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
