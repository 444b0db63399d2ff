"""Where the Nix expressions are: inside the installed package, or in the checkout around it."""

from __future__ import annotations

from pathlib import Path


def expressions() -> Path:
    """Return the folder of ``build.nix``."""
    package = Path(__file__).parents[1]
    installed = package / "_nix"
    return installed if installed.is_dir() else package.parents[1] / "nix"
