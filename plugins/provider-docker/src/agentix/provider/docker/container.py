"""What is asked of the engine for one sandbox, as plain values."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from docker.types import DeviceRequest, LogConfig, Mount

from agentix.provider.kit import MOUNT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agentix.provider.base import SandboxConfig, SandboxResource
    from agentix.provider.docker.config import DockerProviderConfig
    from agentix.provider.kit import RuntimeFolder

SANDBOX = "agentix.sandbox"


def name(sandbox_id: str) -> str:
    """Return the name of the container of *sandbox_id*: known before the container exists."""
    return f"agentix-{sandbox_id}"


def settings(config: SandboxConfig, image: str, folder: RuntimeFolder) -> dict[str, Any]:
    """Return what the container is: the image as it is, with our program as the only process."""
    return {
        "image": image,
        # Given apart, so that an image's ENTRYPOINT and CMD have no say.
        "entrypoint": [folder.command[0]],
        "command": list(folder.command[1:]),
        "environment": dict(config.env or {}),
        "labels": _labels(folder.sandbox_id),
        # A health check of the image would run a program of ours' making every few seconds.
        "healthcheck": {"test": ["NONE"]},
        "detach": True,
    }


def host_settings(
    choices: DockerProviderConfig,
    resource: SandboxResource | None,
    nix: Path,
    folder: RuntimeFolder,
) -> dict[str, Any]:
    """Return what the container gets of the machine: two folders, and no privilege to spare."""
    return {
        # Mounts, not binds: those are written a:b:ro, and paths may have colons.
        "mounts": [
            Mount("/nix", str(nix), type="bind", read_only=True),
            Mount(MOUNT, str(folder.mount), type="bind"),
        ],
        "network_mode": choices.network,
        "cap_drop": ["ALL"],
        "cap_add": list(choices.capabilities),
        "security_opt": ["no-new-privileges:true"] if choices.no_new_privileges else [],
        "pids_limit": choices.pids_limit,
        "read_only": choices.read_only,
        "auto_remove": False,
        # What the runtime prints is for the moment when it dies; it must not fill a disk.
        "log_config": LogConfig(type="json-file", config={"max-size": "1m", "max-file": "2"}),
        **_limits(resource),
    }


def _labels(sandbox_id: str) -> Mapping[str, str]:
    return {
        SANDBOX: sandbox_id,
        "agentix.owner": f"{os.getuid()}@{socket.gethostname()}",
        "agentix.started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _limits(resource: SandboxResource | None) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if resource is None:
        return limits
    if resource.cpu is not None:
        limits["nano_cpus"] = round(resource.cpu * 1e9)
    if resource.memory is not None:
        # Swap counts in: a limit on memory alone would let the rest go to disk.
        limits["mem_limit"] = limits["memswap_limit"] = resource.memory
    if resource.gpu is not None:
        limits["device_requests"] = [DeviceRequest(count=resource.gpu, capabilities=[["gpu"]])]
    return limits
