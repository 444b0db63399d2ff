"""Real server and worker processes; every test has to leave as much as it found."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from local_runtime import LocalRuntime, descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def fresh() -> Iterator[LocalRuntime]:
    """Give a test a runtime of its own."""
    with LocalRuntime() as runtime:
        yield runtime


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Compare this process's descriptors with before."""
    gc.collect()
    before = len(descriptors())
    yield
    gc.collect()
    assert len(descriptors()) <= before, "the test left descriptors open"
