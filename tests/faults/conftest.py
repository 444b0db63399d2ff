"""Real server and worker processes; every test has to leave as much as it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from left_over import nothing_left
from local_runtime import LocalRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def fresh() -> Iterator[LocalRuntime]:
    """Give a test a runtime of its own."""
    with LocalRuntime() as runtime:
        yield runtime


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Compare what this process has with before."""
    with nothing_left(threads=False):
        yield
