"""nixpkgs, for Nix files that ask for ``pkgs``: pinned by flake.lock, fetched by Nix itself."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from agentix.build.expressions import expressions
from agentix.build.request import NIXPKGS
from agentix.errors import FetchError
from agentix.nix.paths import fixed_path
from agentix.text import plain

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.build.lock import Lock
    from agentix.errors import NixError
    from agentix.nix import Nix

OFFLINE = "nixpkgs would have to be fetched"  # what build.nix says where that is forbidden
_FETCHING = "unable to download"  # Nix's words, of every version


def asks_for_nixpkgs(lock: Lock, root: Path) -> bool:
    """Say whether building *lock* of the project in *root* may look into nixpkgs.

    What a plugin's file asks for shows only when it is built.
    """
    if any(declared.nix for declared in (lock.plugins or {}).values()):
        return True
    return lock.nix is not None and b"pkgs" in (root / lock.nix).read_bytes()


def is_fetched(store: Nix) -> bool:
    """Say whether the *store* has the pinned nixpkgs, so that using it needs no network."""
    algorithm, _, digest = _pin()["narHash"].partition("-")
    path = store.real(fixed_path("source", base64.b64decode(digest).hex(), recursive=True))
    return algorithm == "sha256" and path.is_dir()


def explained(error: NixError) -> FetchError | None:
    """Return what *error* means when it says that nixpkgs cannot be fetched, or may not be."""
    said = str(error)
    if OFFLINE in said:
        return FetchError(
            "a Nix file asks for pkgs, and offline the pinned nixpkgs is not fetched; build "
            f"once with a network, or set {NIXPKGS} to a folder with a nixpkgs"
        )
    if _FETCHING not in said or _pin()["rev"] not in said:
        return None
    reason = plain(said.partition("': ")[2] or said)
    return FetchError(
        f"cannot fetch the pinned nixpkgs, since a Nix file asks for pkgs: {reason}; check the "
        f"network, or set {NIXPKGS} to a folder with a nixpkgs"
    )


def _pin() -> dict[str, str]:
    lock = json.loads((expressions().parent / "flake.lock").read_bytes())
    pin: dict[str, str] = lock["nodes"]["nixpkgs"]["locked"]
    return pin
