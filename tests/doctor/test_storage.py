"""The disks: what is full, closed or far away is told with what helps; nothing is counted twice."""

from __future__ import annotations

import os
import shutil
from collections import namedtuple
from typing import TYPE_CHECKING

import pytest

from agentix.doctor import storage

if TYPE_CHECKING:
    from pathlib import Path

Room = namedtuple("Room", "total used free")
NOBODY = 65534


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(("free", "level"), [(9e8, "problem"), (4e9, "note"), (6e9, "ok")])
def test_a_disk_is_weighed_by_what_still_fits(
    free: float, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Room(10**12, 0, int(free)))
    for look, advice in ((storage.cache, "agentix cache gc"), (storage.nix_store, "nix-collect")):
        for finding in look():
            assert finding.level == level
            assert (advice in finding.advice) is (level != "ok")


def test_a_file_counts_once_however_many_bundles_have_it(cache: Path) -> None:
    cache.mkdir()
    (cache / "one").write_bytes(os.urandom(3_000_000))
    (cache / "other").hardlink_to(cache / "one")
    [finding] = storage.cache()
    assert finding.text.startswith(f"{cache}: 3 MB, ")


def test_a_folder_that_is_closed_to_this_user_is_one_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(closed / "deep/cache"))
    closed.chmod(0)
    users = os.getresuid()
    if os.geteuid() == 0:  # to whom nothing is closed
        os.setresuid(NOBODY, NOBODY, 0)
    try:
        [finding] = storage.cache()
    finally:
        os.setresuid(*users)
        closed.chmod(0o700)
    assert (finding.level, finding.text) == ("problem", f"{closed}/deep/cache cannot be written")
    assert "AGENTIX_CACHE_DIR" in finding.advice


def test_a_disk_of_another_machine_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        f"2 1 0:40 / {tmp_path} rw shared:1 - nfs4 far:/export rw\n"
        f"3 1 0:41 / {tmp_path}/other rw - tmpfs tmpfs rw\n"
    )
    monkeypatch.setattr(storage, "_MOUNTS", mounts)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Room(10**12, 0, 10**12))
    [finding] = storage.cache()
    assert finding.level == "note"
    assert finding.text.endswith(" free on nfs4")
    assert "a local disk" in finding.advice
