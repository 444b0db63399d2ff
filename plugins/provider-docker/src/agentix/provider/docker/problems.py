"""What goes wrong with an engine, said in one line with what to do about it."""

from __future__ import annotations

from agentix.errors import ProviderError

_ELSEWHERE = (
    "; the engine does not see this machine's files: it runs elsewhere, in a virtual machine that"
    " does not share them, or this is a container"
)


class RefusedError(ProviderError):
    """The engine answered, with an error: ``status`` is HTTP's, 0 when it came in the middle."""

    def __init__(self, what: str, reason: object, status: int) -> None:
        self.reason = one_line(reason)
        self.status = status
        hint = _ELSEWHERE if "bind source path does not exist" in self.reason else ""
        super().__init__(f"docker cannot {what}: {self.reason}{hint}")


def why_no_connection(where: str, path: str, error: OSError) -> str:
    """Return why nobody answers at the socket *path*."""
    match error:
        case FileNotFoundError():
            return f"no Docker engine at {where}: install or start Docker, or set DOCKER_HOST"
        case PermissionError():
            return (
                f"no permission to use the Docker engine at {where}; run as a user who may open"
                f" {path} (usually: a member of the group docker)"
            )
        case _:
            return f"the Docker engine at {where} is down ({one_line(error)}); start Docker"


def why_not_pulled(reference: str, platform: str, reason: str) -> str:
    """Return why the registry's *reference* cannot be had."""
    image = f"image {reference!r}"
    if "no matching manifest" in reason or "does not match the specified platform" in reason:
        return f"{image} is not made for {platform}: {reason}"
    registry_said_no = ("manifest unknown", "not found", "does not exist", "denied")
    hint = "check the name and the network"
    if any(sign in reason for sign in registry_said_no):
        hint = "check the name, or log in to its registry with docker login"
    return f"{image} is not on this machine and cannot be pulled: {reason}; {hint}"


def one_line(text: object) -> str:
    """Return *text* on one line of bounded length."""
    return " ".join(str(text).split())[:500]
