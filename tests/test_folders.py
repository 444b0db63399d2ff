"""The cache is where the user says, or the user is told what to say."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, NoReturn

import pytest

from agentix.errors import FetchError
from agentix.folders import cache_folder, cache_root

if TYPE_CHECKING:
    from pathlib import Path


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: int) -> NoReturn:
        raise KeyError

    for name in ("AGENTIX_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(FetchError, match="no home; set AGENTIX_CACHE_DIR"):
        cache_root()


def test_a_cache_that_cannot_be_made_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AGENTIX_CACHE_DIR", os.fspath(tmp_path / "file"))
    with pytest.raises(FetchError, match="Not a directory; set AGENTIX_CACHE_DIR to a folder"):
        cache_folder("downloads")
