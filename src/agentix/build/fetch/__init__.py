"""From a lock to the Nix store: what a build starts from is brought there before it begins."""

from __future__ import annotations

from agentix.build.fetch.fetching import Fetched, fetch, fetch_project, missing
from agentix.build.fetch.needs import Needs, needs, total_size

__all__ = ["Fetched", "Needs", "fetch", "fetch_project", "missing", "needs", "total_size"]
