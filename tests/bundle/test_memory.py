"""What is remembered of a file is true as long as it is remembered."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from agentix.bundle.memory import Memory

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = "d" * 64
SECOND = 1_000_000_000


def status(age: float, *, inode: int = 7, size: int = 5, coarse: bool = False) -> os.stat_result:
    """The status of a file that changed *age* seconds ago."""
    changed = time.time_ns() - int(age * SECOND)
    changed = changed // SECOND * SECOND if coarse else changed // SECOND * SECOND + 1
    times = {"st_atime_ns": 0, "st_mtime_ns": changed, "st_ctime_ns": changed}
    return os.stat_result((0o100644, inode, 1, 1, 0, 0, size, 0, 0, 0), times)


def test_a_file_that_rested_is_remembered_by_whoever_looks(tmp_path: Path) -> None:
    old = status(10)
    Memory(tmp_path / "memory").remember(old, old, DIGEST)
    assert Memory(tmp_path / "memory").recall(old) == DIGEST


@pytest.mark.parametrize(("age", "coarse"), [(-5, False), (0.5, True), (-5, True)])
def test_a_file_that_may_still_change_unnoticed_is_not(
    tmp_path: Path, age: float, coarse: bool
) -> None:
    memory, fresh = Memory(tmp_path), status(age, coarse=coarse)
    memory.remember(fresh, fresh, DIGEST)
    assert memory.recall(fresh) is None


def test_a_file_that_changed_while_it_was_read_is_not(tmp_path: Path) -> None:
    memory, before = Memory(tmp_path), status(10)
    memory.remember(before, status(5), DIGEST)
    memory.remember(before, status(10, size=6), DIGEST)
    assert memory.recall(before) is None


def test_another_file_is_another_file(tmp_path: Path) -> None:
    memory, old = Memory(tmp_path), status(10)
    memory.remember(old, old, DIGEST)
    assert memory.recall(status(10, inode=8)) is None
    assert memory.recall(status(12)) is None


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b"null", b'{"stamp": 1}', b"\xff"])
def test_junk_is_forgotten(tmp_path: Path, junk: bytes) -> None:
    memory, old = Memory(tmp_path), status(10)
    memory.remember(old, old, DIGEST)
    (note,) = tmp_path.iterdir()
    note.write_bytes(junk)
    assert memory.recall(old) is None


def test_that_nothing_can_be_noted_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "memory").write_text("a file")
    old = status(10)
    Memory(tmp_path / "memory").remember(old, old, DIGEST)
