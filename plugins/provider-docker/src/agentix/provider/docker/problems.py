"""What goes wrong with an engine, said in one line with what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.errors import ProviderError
from agentix.provider.kit import plain, quoted

if TYPE_CHECKING:
    from agentix.provider.docker.address import Address, Kind

HOSTS = {"docker": "DOCKER_HOST", "podman": "CONTAINER_HOST"}
_ELSEWHERE = (
    "; the engine does not see this machine's files: it runs elsewhere, in a virtual machine that"
    " does not share them, or this is a container"
)
_REGISTRY_SAID_NO = (
    *("manifest unknown", "not found", "does not exist", "denied", "unauthorized"),
    *("authentication required", "no basic auth credentials"),
)
_NO_NETWORK = "; `{kind} network ls` shows which there are, `{kind} network create` makes one"
_NO_TUN = (
    "; a network for ordinary users needs /dev/net/tun (as root: chmod 666 /dev/net/tun), or use"
    " network='none'"
)


class RefusedError(ProviderError):
    """The engine answered, with an error: ``status`` is HTTP's, 0 when it came in the middle."""

    def __init__(self, kind: Kind, what: str, reason: object, status: int) -> None:
        self.reason = one_line(reason)
        self.status = status
        super().__init__(f"{kind} cannot {what}: {self.reason}{_what_to_do(kind, self.reason)}")


def _what_to_do(kind: Kind, reason: str) -> str:
    if "bind source path does not exist" in reason or "statfs /" in reason:
        return _ELSEWHERE
    if "network" in reason and "not found" in reason:
        return _NO_NETWORK.format(kind=kind)
    return _NO_TUN if "/dev/net/tun" in reason else ""


def elsewhere(kind: Kind, url: str) -> str:
    """Return why an engine of this *kind* at *url* cannot be used."""
    return (
        f"the {kind.title()} engine at {plain(url)} may be on another machine, which works with"
        f" Docker only; set {HOSTS[kind]} to the socket of an engine on this machine, such as"
        " unix:///run/podman/podman.sock"
    )


def no_such_way(kind: Kind, url: str) -> str:
    """Return why nobody can be reached at *url*."""
    if not url.isprintable():
        where = f"the {kind.title()} engine at {plain(url)}"
        return f"{where} cannot be used: take what is no letter out of {HOSTS[kind]}"
    return (
        f"the {kind.title()} engine at {plain(url)} cannot be used: {HOSTS[kind]} may begin with unix://,"
        " tcp:// or ssh://"
    )


def why_no_connection(where: Address, error: OSError) -> str:
    """Return why nobody answers at the socket."""
    engine = f"{where.kind.title()} engine at {plain(where.url)}"
    match error:
        case FileNotFoundError():
            start = f"install or start {where.kind.title()}"
            return f"no {engine}: {start}, or set {HOSTS[where.kind]}"
        case PermissionError():
            usually = " (usually: a member of the group docker)" if where.kind == "docker" else ""
            return (
                f"no permission to use the {engine}; run as a user who may open"
                f" {plain(str(where.path))}{usually}"
            )
        case _:
            return f"the {engine} is down ({one_line(error)}); start {where.kind.title()}"


def why_not_pulled(kind: Kind, reference: str, platform: str, reason: str) -> str:
    """Return why the registry's *reference* cannot be had."""
    image = f"image {quoted(reference)}"
    if "no matching manifest" in reason or "does not match the specified platform" in reason:
        return f"{image} is not made for {platform}: {reason}"
    hint = "check the name and the network"
    if any(sign in reason.lower() for sign in _REGISTRY_SAID_NO):
        hint = f"check the name, or log in to its registry with {kind} login"
    return f"{image} is not on this machine and cannot be pulled: {reason}; {hint}"


def one_line(text: object) -> str:
    """Return *text*, which a registry or an image may have chosen, on one line, bounded."""
    return plain(" ".join(str(text).split()), 500)
