"""Which engine is meant, and how it is reached."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from docker.context import ContextAPI

from agentix.errors import ProviderError
from agentix.provider.docker import service
from agentix.provider.docker.problems import elsewhere, no_such_way
from agentix.provider.kit import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from docker.tls import TLSConfig

Kind = Literal["docker", "podman"]

LOCAL = "unix://"
REMOTE = ("tcp://", "ssh://")
DEFAULT_DOCKER = "unix:///var/run/docker.sock"


@dataclass(frozen=True, slots=True)
class Tls:
    """The files for TLS with an engine; without *verify*, whoever answers is believed."""

    ca: str | None
    cert: str | None
    key: str | None
    verify: bool

    @classmethod
    def of_folder(cls, folder: Path, *, verify: bool) -> Tls:
        """Return those of a *folder* as the docker CLI has them."""

        def find(name: str) -> str | None:
            return str(folder / name) if (folder / name).exists() else None

        return cls(find("ca.pem"), find("cert.pem"), find("key.pem"), verify)


@dataclass(frozen=True, slots=True)
class Address:
    """An engine of one *kind* at *url*: a socket of this machine, or another machine."""

    kind: Kind
    url: str
    tls: Tls | None = None

    @classmethod
    def of(cls, kind: Kind, facts: Mapping[str, Any]) -> Address:
        """Return what :meth:`facts` was made of."""
        tls = facts.get("tls")
        return cls(kind, str(facts["engine"]), Tls(**tls) if tls else None)

    def facts(self) -> dict[str, Any]:
        """Return this as plain values, for a record."""
        return {"engine": self.url, "tls": asdict(self.tls) if self.tls else None}

    @property
    def remote(self) -> bool:
        """Whether it may be elsewhere: it sees nothing of this machine's files and sockets."""
        return not self.url.startswith(LOCAL)

    @property
    def path(self) -> Path:
        """The socket, of one that is here."""
        return Path(self.url.removeprefix(LOCAL))

    @property
    def ours(self) -> bool:
        """Whether it is the service that this user's sandboxes start where there is none."""
        return self.kind == "podman" and self.path == service.socket_path()


def locate(kind: Kind) -> Address:
    """Return where the engine of this *kind* is to be asked.

    Raises ProviderError when that is nothing that can be used.
    """
    where = _docker() if kind == "docker" else _podman()
    if where.remote:
        if kind == "podman":
            raise ProviderError(elsewhere(kind, where.url))
        if not where.url.startswith(REMOTE):
            raise ProviderError(no_such_way(kind, where.url))
    return where


def _docker() -> Address:
    """Return DOCKER_HOST, else the context that the docker CLI uses."""
    if chosen := os.environ.get("DOCKER_HOST"):
        tls = None
        if chosen.startswith("tcp://") and (verify := os.environ.get("DOCKER_TLS_VERIFY")):
            folder = os.environ.get("DOCKER_CERT_PATH") or Path.home() / ".docker"
            tls = Tls.of_folder(Path(folder).absolute(), verify=bool(verify))
        return Address("docker", chosen, tls)
    name = os.environ.get("DOCKER_CONTEXT")
    context = None
    with contextlib.suppress(Exception):  # a broken ~/.docker must not stop the default engine
        context = ContextAPI.get_context(name) if name else ContextAPI.get_current_context()
    if context is None:
        if name:
            raise ProviderError(
                f"there is no docker context {quoted(name)}, which DOCKER_CONTEXT names;"
                " `docker context ls` shows which there are"
            )
        return Address("docker", DEFAULT_DOCKER)
    url = str(context.Host or DEFAULT_DOCKER)
    found: TLSConfig | None = context.TLSConfig
    if found is None or not url.startswith("tcp://"):
        return Address("docker", url)
    cert, key = found.cert or (None, None)
    return Address("docker", url, Tls(found.ca_cert, cert, key, bool(found.verify)))


def _podman() -> Address:
    """Return CONTAINER_HOST, else where the user's service listens, else our own's place."""
    if chosen := os.environ.get("CONTAINER_HOST"):
        return Address("podman", chosen)
    found = next((path for path in _podman_sockets() if service.listens(path)), None)
    return Address("podman", f"{LOCAL}{found or service.socket_path()}")


def _podman_sockets() -> Iterator[Path]:
    if os.getuid() == 0:
        yield Path("/run/podman/podman.sock")
        return
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    for folder in filter(None, (runtime, f"/run/user/{os.getuid()}")):
        yield Path(folder, "podman/podman.sock")
