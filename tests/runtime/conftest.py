"""Real server and worker processes; every test has to leave as much as it found."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from local_runtime import LocalRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalRuntime]:
    """Give a runtime to the tests of a module that do it no harm."""
    with LocalRuntime() as runtime:
        yield runtime


@pytest.fixture
def fresh() -> Iterator[LocalRuntime]:
    """Give a test a runtime of its own."""
    with LocalRuntime() as runtime:
        yield runtime


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Count this process's descriptors before and after each test."""
    for name in ("shared", "fresh"):
        if name in request.fixturenames:
            request.getfixturevalue(name)
    before = _descriptors()
    yield
    gc.collect()
    left = _descriptors() - before
    assert not left, f"the test left descriptors open: {left}"


def _descriptors() -> set[str]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except FileNotFoundError:  # the one that lists this folder
            continue
    return found
