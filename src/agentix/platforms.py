"""The platforms that bundles are built for, and what each tool calls them."""

from __future__ import annotations

import platform as _host
from dataclasses import dataclass
from typing import Literal

PlatformName = Literal["linux/amd64", "linux/arm64"]


@dataclass(frozen=True, slots=True)
class Platform:
    """One Linux platform under its various names.

    ``name`` is the OCI name (``linux/amd64``), ``nix`` Nix's system, ``debian`` dpkg's
    architecture, ``machine`` what ``uname -m`` and wheel tags say.
    """

    name: PlatformName
    nix: str
    debian: str
    machine: str

    def __str__(self) -> str:
        return self.name


AMD64 = Platform("linux/amd64", "x86_64-linux", "amd64", "x86_64")
ARM64 = Platform("linux/arm64", "aarch64-linux", "arm64", "aarch64")
PLATFORMS: dict[PlatformName, Platform] = {p.name: p for p in (AMD64, ARM64)}


def parse(name: str) -> Platform:
    """Return the platform called *name*.

    Raises ValueError for a platform that bundles cannot be built for.
    """
    for candidate in PLATFORMS.values():
        if candidate.name == name:
            return candidate
    known = ", ".join(PLATFORMS)
    raise ValueError(f"platform {name!r} is not supported; choose one of {known}")


def current() -> Platform:
    """Return the platform of this machine; ValueError when bundles cannot run on it."""
    machine = _host.machine()
    for candidate in PLATFORMS.values():
        if candidate.machine == machine and _host.system() == "Linux":
            return candidate
    known = ", ".join(PLATFORMS)
    raise ValueError(f"this machine is {_host.system()} {machine}; Agentix runs on {known}")
