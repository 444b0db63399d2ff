"""A cache of a test's own, in which only what Debian has signed is shared with other tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.folders import cache_folder

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def own_cache(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make *folder* the cache; the indices of Debian's suites need not be fetched again."""
    folder.mkdir()
    (folder / "debian").symlink_to(cache_folder("debian"))
    patch.setenv("AGENTIX_CACHE_DIR", str(folder))
