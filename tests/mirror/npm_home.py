"""A user whose npm is configured with a registry of our own."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def clean_home(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Make a home without npm settings, and an environment without any."""
    for name in list(os.environ):
        if name.lower().startswith("npm_config_") or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    home = folder / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(folder / "cache"))
    monkeypatch.setenv("NPM_CONFIG_GLOBALCONFIG", str(folder / "global-npmrc"))
    monkeypatch.setenv("NPM_CONFIG_CACHE", str(folder / "npm-cache"))
    return home


def hide_npm(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Set a PATH with no npm and no node on it."""
    bare = folder / "bin"
    bare.mkdir()
    for name in ("git", "sh", "env"):
        if found := shutil.which(name):
            (bare / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(bare))
