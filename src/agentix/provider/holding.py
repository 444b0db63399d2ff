"""The bundles of the sandboxes that this process has made, held for as long as those are there.

``agentix cache gc`` takes nothing that is held. What a killed process held, its containers still
have mounted, which the kernel knows.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.bundle import CachedBundle

_bundles: dict[Path, CachedBundle] = {}
_guard = threading.Lock()


def keep_bundle(folder: Path, bundle: CachedBundle) -> None:
    """Hold *bundle* until the *folder* of its sandbox is gone, or this process is."""
    with _guard:
        for other in [each for each in _bundles if not each.exists()]:
            del _bundles[other]  # another process has deleted that sandbox
        _bundles[folder] = bundle


def release_bundle(folder: Path) -> None:
    """Hold the bundle of that sandbox no longer."""
    with _guard:
        _bundles.pop(folder, None)


def _forked() -> None:
    _guard.release()
    _bundles.clear()


os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_forked)
