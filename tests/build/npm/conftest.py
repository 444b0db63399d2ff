from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from mirror.npm import NpmRegistry
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
    for name in list(os.environ):
        if name.lower().startswith("npm_config_") or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NPM_CONFIG_GLOBALCONFIG", str(tmp_path / "global-npmrc"))
    return home


@pytest.fixture
def registry(server: Server, home: Path) -> NpmRegistry:
    """An npm registry of our own, configured in the user's .npmrc."""
    registry = NpmRegistry(server)
    (home / ".npmrc").write_text(f"registry={registry.address}/\n")
    return registry


@pytest.fixture
def without_npm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A PATH with no npm and no node on it."""
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("git", "sh", "env"):
        if found := shutil.which(name):
            (bare / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(bare))
