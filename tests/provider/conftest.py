"""What tests of sessions share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """The folder in which sandboxes are folders."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    return shelf
