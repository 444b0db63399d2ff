"""Removing trees that somebody made hard to remove."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agentix.bundle.removal import erase, remove

DEEP = 3000  # folders, each in the one before: beyond the stack, and a path of 4095 bytes


def _dig(folder: Path) -> None:
    """Make *folder*, and DEEP folders with a name of 10 bytes and a file each below it."""
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(DEEP):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        os.mkdir("0123456789", dir_fd=at)
        below = os.open("0123456789", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def test_a_tree_too_deep_for_paths_and_for_the_stack_is_removed(tmp_path: Path) -> None:
    _dig(tmp_path / "deep")
    erase(tmp_path / "deep")
    assert list(tmp_path.iterdir()) == []


CLOSED = """
import os, sys
from pathlib import Path
from agentix.bundle.removal import erase
tree = Path(sys.argv[1])
if os.getuid() == 0:
    os.chown(tree.parent, 54321, 54321)
    os.setgroups([]), os.setgid(54321), os.setuid(54321)
(tree / "a/b/c").mkdir(parents=True)
(tree / "a/b/c/file").touch()
for folder in ("a/b/c", "a/b", "a", "."):
    (tree / folder).chmod(0)
erase(tree)
assert not tree.exists()
"""


def test_folders_that_deny_their_owner_everything_are_removed(tmp_path: Path) -> None:
    # Not tmp_path: another user cannot go there.
    with tempfile.TemporaryDirectory(dir="/tmp") as outer:
        Path(outer).chmod(0o711)
        place = Path(outer, "place")
        place.mkdir()
        command = [sys.executable, "-c", CLOSED, str(place / "tree")]
        subprocess.run(command, check=True, timeout=60)


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    tree = tmp_path / "tree"
    (tree / "below").mkdir(parents=True)
    (tree / "link").symlink_to(kept)
    (tree / "below/link").symlink_to(kept)
    erase(tree)
    (tmp_path / "tree").symlink_to(kept)
    erase(tree)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "file").exists()


def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    for name in (b"-rf", b"\xff\xfe", b"a\nb", b" ", b"0" * 255):
        (tmp_path / "tree" / os.fsdecode(name) / os.fsdecode(name)).mkdir(parents=True)
    erase(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_removed_already(tmp_path: Path) -> None:
    erase(tmp_path / "nothing")


def test_what_cannot_be_removed_is_an_error_or_is_left_as_asked() -> None:
    with pytest.raises(OSError, match=r"."):
        erase(Path("/proc/self/fdinfo"))
    remove(Path("/proc/self/fdinfo"))
