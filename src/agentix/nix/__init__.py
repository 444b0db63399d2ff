"""The only part that runs Nix. Every path that it returns can be opened on this machine."""

from __future__ import annotations

from agentix.nix.build import Rebuilt, build, rebuild
from agentix.nix.installation import Nix, find
from agentix.nix.paths import fixed_path, store_name
from agentix.nix.store import StorePath, add_fixed, closure, invalid

__all__ = [
    "Nix",
    "Rebuilt",
    "StorePath",
    "add_fixed",
    "build",
    "closure",
    "find",
    "fixed_path",
    "invalid",
    "rebuild",
    "store_name",
]
