"""What a test leaves open is told by what it is; what others' tests take away is not minded."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
from left_over import nothing_left

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _not_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("left_over._WITHIN", 0.1)


def test_a_thread_is_named() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="one that stays")
    with pytest.raises(AssertionError, match="left behind: thread one that stays"), nothing_left():
        thread.start()
    done.set()
    thread.join()


def test_a_child_is_named() -> None:
    with contextlib.ExitStack() as stack:
        with pytest.raises(AssertionError, match="left behind: child "), nothing_left():
            child = stack.enter_context(subprocess.Popen(["sleep", "60"]))
        child.kill()


def test_a_descriptor_is_named_and_what_goes_does_not_make_up_for_it(tmp_path: Path) -> None:
    old, new = (os.open(tmp_path / name, os.O_CREAT | os.O_RDWR) for name in ("old", "new"))
    spare = os.dup(new)
    with nothing_left():
        os.close(spare)
    with pytest.raises(AssertionError, match=f"left behind: {tmp_path}/new$"), nothing_left():
        os.dup2(new, old)
    os.close(old)
    os.close(new)
