"""What a test leaves open is told by what it is; what others' tests take away is not minded."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
from left_over import nothing_left

if TYPE_CHECKING:
    from pathlib import Path


def test_what_came_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("left_over._WITHIN", 0.1)
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="a thread that stays")
    (tmp_path / "left").touch()
    descriptor, child = -1, None
    try:
        with pytest.raises(AssertionError, match="left behind") as caught, nothing_left():
            descriptor = os.open(tmp_path / "left", os.O_RDONLY)
            thread.start()
            child = subprocess.Popen(["sleep", "60"])
        assert child is not None
        for what in (str(tmp_path / "left"), "thread a thread that stays", f"child {child.pid}"):
            assert what in str(caught.value)
    finally:
        done.set()
        if descriptor >= 0:
            os.close(descriptor)
        if child is not None:
            child.kill()
            child.wait()


def test_what_goes_does_not_make_up_for_what_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("left_over._WITHIN", 0.1)
    old = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "new").touch()
    with nothing_left():
        os.close(old)
    old, new = os.open(tmp_path, os.O_RDONLY), -1
    with pytest.raises(AssertionError, match=f"left behind: {tmp_path}/new$"), nothing_left():
        os.close(old)
        new = os.open(tmp_path / "new", os.O_RDONLY)
    os.close(new)
