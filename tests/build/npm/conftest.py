from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from mirror.npm import NpmRegistry
from mirror.npm_home import clean_home, hide_npm
from mirror.server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.server import Server


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home without npm settings, and none in the environment."""
    return clean_home(monkeypatch, tmp_path)


@pytest.fixture
def registry(server: Server, home: Path) -> NpmRegistry:
    """An npm registry of our own, configured in the user's .npmrc."""
    registry = NpmRegistry(server)
    (home / ".npmrc").write_text(f"registry={registry.address}/\n")
    return registry


@pytest.fixture
def without_npm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A PATH with no npm and no node on it."""
    hide_npm(monkeypatch, tmp_path)
