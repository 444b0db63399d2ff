"""Fixtures of the bundle tests."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentix.bundle import BundleCache
from bundle.handmade import Bundle, Workshop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    folder = tmp_path / "workshop"
    folder.mkdir()
    return Workshop(folder)


@pytest.fixture
def bundle(workshop: Workshop) -> Bundle:
    return workshop.bundle()


@pytest.fixture
def tar(bundle: Bundle, tmp_path: Path) -> Path:
    return bundle.write(tmp_path / "hello.bundle.tar").path


@pytest.fixture
def cache(tmp_path: Path) -> BundleCache:
    return BundleCache(tmp_path / "cache")


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that every user may enter and write to, unlike tmp_path."""
    folder = Path(tempfile.mkdtemp(prefix="agentix-test-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_user() -> Callable[[Callable[[], None]], None]:
    """Run a function in a child process of an ordinary user, and fail when it fails."""
    if os.geteuid() != 0:
        return lambda function: function()

    def run(function: Callable[[], None]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setresgid(1000, 1000, 1000)
                os.setresuid(1000, 1000, 1000)
                function()
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0

    return run
