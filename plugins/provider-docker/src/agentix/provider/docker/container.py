"""What is asked of the engine for one sandbox, as plain values."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from docker.types import LogConfig, Mount

from agentix.errors import ProviderError
from agentix.provider.base import Owner
from agentix.provider.docker import limits
from agentix.provider.kit import MOUNT, lease_arguments, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agentix.provider.base import SandboxConfig, SandboxResource
    from agentix.provider.docker.address import Kind
    from agentix.provider.docker.config import DockerProviderConfig
    from agentix.provider.docker.facts import Image
    from agentix.provider.kit import RuntimeFolder

SANDBOX = "agentix.sandbox"
IMAGE = "agentix.image"
PROCESS = "agentix.process"
STARTED = "agentix.started"
# What Podman adds to an image's environment; the proxies are those of whoever started it.
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy")
OF_PODMAN = ("TERM", "container", *_PROXIES, *(name.upper() for name in _PROXIES))


def name(sandbox_id: str) -> str:
    """Return the name of the container of *sandbox_id*: known before the container exists."""
    return f"agentix-{sandbox_id}"


def settings(
    choices: DockerProviderConfig, config: SandboxConfig, image: Image, folder: RuntimeFolder
) -> dict[str, Any]:
    """Return what the container is: the image as it is, with our program as the only process."""
    program, *arguments = (*folder.command, *lease_arguments(choices.lease))
    return {
        "image": image.id,
        # Given apart, so that an image's ENTRYPOINT and CMD have no say.
        "entrypoint": [program],
        "command": [*arguments, *_without_the_engines(choices.container_engine, config, image)],
        "environment": dict(config.env or {}),
        "labels": _labels(folder, config.image),
        # A health check of the image would run a program of ours' making every few seconds.
        "healthcheck": {"test": ["NONE"]},
        "detach": True,
    }


def host_settings(
    choices: DockerProviderConfig,
    resource: SandboxResource | None,
    mounts: Sequence[Mount],
    folder: RuntimeFolder,
) -> dict[str, Any]:
    """Return what the container gets of the machine: some folders, and no privilege to spare.

    *mounts* are those of the bundle, as :mod:`.stores` makes them.
    """
    return {
        # Mounts, not binds: those are written a:b:ro, and paths may have colons.
        "mounts": [
            *mounts,
            Mount(MOUNT, source(choices, folder.mount), type="bind"),
        ],
        "network_mode": _network(choices),
        "cap_drop": ["ALL"],
        "cap_add": list(choices.capabilities),
        "security_opt": ["no-new-privileges:true"] if choices.no_new_privileges else [],
        "read_only": choices.read_only,
        "auto_remove": False,
        # What the runtime prints is for the moment when it dies; it must not fill a disk.
        "log_config": LogConfig(type="json-file", config={"max-size": "1m", "max-file": "2"}),
        **limits.of(resource, choices),
    }


def _network(choices: DockerProviderConfig) -> str:
    """Return the network by the engine's own name for it."""
    # What Docker calls default is a bridge, which is not what Podman has for ordinary users.
    podmans = choices.container_engine == "podman" and choices.network == "default"
    return "private" if podmans else choices.network


def source(choices: DockerProviderConfig, path: Path) -> str:
    """Return the folder to mount, as long as its name can be told to the engine."""
    # Podman makes a line of comma-separated values of a mount, and reads that.
    if choices.container_engine == "podman" and not {*str(path)}.isdisjoint(',"\r\n'):
        raise ProviderError(
            f"podman cannot mount {quoted(str(path))}: a comma, a quotation mark or a line break is"
            " in its name; choose other folders with AGENTIX_CACHE_DIR and XDG_RUNTIME_DIR"
        )
    return str(path)


def _without_the_engines(kind: Kind, config: SandboxConfig, image: Image) -> list[str]:
    """Return options that take out the variables that only the engine has put in."""
    if kind == "docker":
        return []
    meant = {*(config.env or ()), *(each.partition("=")[0] for each in image.environment)}
    return [word for name in OF_PODMAN if name not in meant for word in ("--unset", name)]


def _labels(folder: RuntimeFolder, image: str) -> Mapping[str, str]:
    record = folder.read_record()  # both are listed, and say the same
    started = datetime.now(UTC) if record is None else record.created
    return {
        SANDBOX: folder.sandbox_id,
        IMAGE: image,
        PROCESS: Owner.current().text(),
        "agentix.owner": f"{os.getuid()}@{socket.gethostname()}",
        STARTED: started.isoformat(timespec="seconds"),
    }
