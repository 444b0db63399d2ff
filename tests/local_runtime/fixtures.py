"""Runtimes for tests, in the areas whose ``conftest`` names these fixtures."""

from __future__ import annotations

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
