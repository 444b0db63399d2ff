"""The list of what is looked at, in the order in which it is told."""

from __future__ import annotations

from agentix.doctor import building, registries, storage
from agentix.doctor.examination import Check
from agentix.doctor.plugins import emulation, plugin_checks
from agentix.doctor.program import installed

_skopeo = installed("skopeo", needed="images come from files and engines only, not from registries")


def every_check(*, offline: bool = False) -> list[Check]:
    """Return every check; with *offline* those that need no network."""
    checks = [
        Check("building", "nix", building.nix_program),
        Check("building", "store", storage.nix_store),
        Check("building", "builders", building.nix_builders),
        Check("building", "resolver", building.uv),
        Check("building", "git", building.git),
        Check("building", "gpgv", building.signatures),
    ]
    if not offline:
        checks += [
            Check("registries", "python", registries.python_index),
            Check("registries", "debian", registries.debian_mirror),
            Check("registries", "npm", registries.npm_registry),
        ]
    checks += [
        Check("cache", "cache", storage.cache),
        *plugin_checks(),
        Check("other", "skopeo", _skopeo),
        Check("other", "emulation", emulation),
    ]
    return checks
