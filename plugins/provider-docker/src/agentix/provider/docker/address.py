"""Which engine is meant, and where it listens."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from docker.context import ContextAPI

from agentix.errors import ProviderError
from agentix.provider.docker import service
from agentix.provider.docker.problems import elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["docker", "podman"]

LOCAL = "unix://"
DEFAULT_DOCKER = "unix:///var/run/docker.sock"


@dataclass(frozen=True, slots=True)
class Address:
    """An engine of one *kind* at *url*: a socket of this machine."""

    kind: Kind
    url: str

    @property
    def path(self) -> Path:
        """The socket."""
        return Path(self.url.removeprefix(LOCAL))

    @property
    def ours(self) -> bool:
        """Whether it is the service that this user's sandboxes start where there is none."""
        return self.kind == "podman" and self.path == service.socket_path()


def locate(kind: Kind) -> Address:
    """Return where the engine of this *kind* is to be asked.

    Raises ProviderError when that is another machine, which cannot see the bundle or the socket.
    """
    url = _docker() if kind == "docker" else _podman()
    if not url.startswith(LOCAL):
        raise ProviderError(elsewhere(kind, url))
    return Address(kind, url)


def _docker() -> str:
    """Return DOCKER_HOST, else the context that the docker CLI uses."""
    if chosen := os.environ.get("DOCKER_HOST"):
        return chosen
    with contextlib.suppress(Exception):  # a broken ~/.docker must not stop the default engine
        return str(ContextAPI.get_current_context().Host or DEFAULT_DOCKER)
    return DEFAULT_DOCKER


def _podman() -> str:
    """Return CONTAINER_HOST, else where the user's service listens, else our own's place."""
    if chosen := os.environ.get("CONTAINER_HOST"):
        return chosen
    found = next((path for path in _podman_sockets() if service.listens(path)), None)
    return f"{LOCAL}{found or service.socket_path()}"


def _podman_sockets() -> Iterator[Path]:
    if os.getuid() == 0:
        yield Path("/run/podman/podman.sock")
        return
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    for folder in filter(None, (runtime, f"/run/user/{os.getuid()}")):
        yield Path(folder, "podman/podman.sock")
