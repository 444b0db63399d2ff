"""Sandboxes on bubblewrap, as processes; the runtime in them is a stub, so that this needs no Nix.

Real bundles in each form of an image are in test_bubblewrap_images.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from left_over import nothing_left
from stub_runtime import make_entry

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the test a place for folders of its own; afterwards nothing may be left anywhere."""
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    with tempfile.TemporaryDirectory(prefix="ax") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        folder = Path(short, "agentix")
        with nothing_left():
            yield folder
        assert not folder.exists() or list(folder.iterdir()) == []


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_entry(tmp_path)
