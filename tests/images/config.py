"""What an image says about how its programs are run, in the terms of Docker and OCI."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

# Docker adds this to an image that sets no PATH, so the reference for such an image has it too.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """The part of an image configuration that changes how a process starts."""

    env: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    healthcheck: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()

    def to_oci(self) -> dict[str, Any]:
        """Return the ``config`` object of an OCI or Docker image configuration."""
        fields: dict[str, Any] = {
            "Env": [f"{name}={value}" for name, value in self.env],
            "WorkingDir": self.workdir,
            "User": self.user,
            "Entrypoint": list(self.entrypoint) or None,
            "Cmd": list(self.command) or None,
            "Volumes": {path: {} for path in self.volumes},
        }
        if self.healthcheck:
            second = 1_000_000_000
            fields["Healthcheck"] = {
                "Test": list(self.healthcheck), "Interval": second, "Retries": 1,
            }  # fmt: skip
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class TaskImage:
    """One image on disk: its root file system and what it says about running.

    ``digest`` identifies the recipe it was made from; ``environment_program`` is a program of the
    image that prints its environment (``None`` when the image has no programs), ``python`` the
    image's own interpreter, ``read_only`` whether it is meant to be run with a read-only root.
    """

    name: str
    digest: str
    rootfs: Path
    config: ImageConfig
    architecture: str
    environment_program: tuple[str, ...] | None = None
    python: str | None = None
    read_only: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the image sets, with Docker's PATH where it sets none."""
        return {"PATH": DEFAULT_PATH} | dict(self.config.env)

    def configuration(self, diff_id: str) -> bytes:
        """Return the image configuration document for a single layer called *diff_id*."""
        document = {
            "architecture": self.architecture,
            "os": "linux",
            "config": self.config.to_oci(),
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
            "history": [{"created_by": f"agentix test recipe {self.name}"}],
        }
        return json.dumps(document, sort_keys=True).encode()
