from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from mirror.server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.server import Server


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: Server) -> None:
    """A mirror of our own, a cache of our own, and nobody's proxies or index settings."""
    for name in list(os.environ):
        if name.upper().endswith("_PROXY") or name.startswith(("UV_", "AGENTIX_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AGENTIX_DEBIAN_MIRROR", f"{server.address}/debian")
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
