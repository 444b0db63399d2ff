"""Where Agentix keeps what can be made or fetched again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """Return the folder for it: ``$AGENTIX_CACHE_DIR`` or the user's own. It need not exist."""
    if chosen := os.environ.get("AGENTIX_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("agentix", appauthor=False)
