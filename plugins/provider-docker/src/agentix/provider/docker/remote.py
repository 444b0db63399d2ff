"""A container on another machine: its bundle from a volume there, its secret by standard input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from docker.types import Mount

from agentix.errors import ImageError
from agentix.provider.docker.line import Line
from agentix.provider.docker.shipping import BUNDLE, volume
from agentix.provider.kit import MOUNT, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentix.provider.docker.address import Address
    from agentix.provider.kit import CachedBundle, RuntimeFolder

_SOCKETS = 1 << 20  # bytes; there is one, and what the task puts beside it


def settings(local: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the container is, given what it would be on this machine."""
    command = list(local["command"])
    command[command.index("--token-file") + 1] = "-"
    # With standard input attached, it ends for the runtime once whoever made this is gone.
    return {**local, "command": command, "stdin_open": True, "detach": False}


def mounts(bundle: CachedBundle, label: str, *, merged: bool) -> list[Mount]:
    """Return the mounts that show *bundle*, and a folder for its socket, in the image *label*.

    Raises ImageError when the image has a Nix store of its own.
    """
    if merged:
        raise ImageError(
            f"image {quoted(label)} has a /nix of its own, which cannot be merged with the bundle's"
            " on an engine on another machine; use an engine on this one"
        )
    return [
        Mount(
            "/nix",
            volume(bundle),
            type="volume",
            read_only=True,
            no_copy=True,
            labels={BUNDLE: bundle.digest},
        ),
        Mount(MOUNT, None, type="tmpfs", tmpfs_size=_SOCKETS, tmpfs_mode=0o1777),
    ]


class Secret:
    """The secret of one sandbox, on its way to the runtime's standard input."""

    def __init__(self, where: Address, name: str, folder: RuntimeFolder) -> None:
        self._where, self._name, self._folder = where, name, folder
        self._line: Line | None = None

    def tell(self) -> None:
        """Say it to the container, before that is started.

        It is read for as long as this is not closed. Raises ProviderError when the engine cannot
        be reached or refuses.
        """
        (self._folder.mount / "token").unlink(missing_ok=True)  # which the container does not see
        self._line = Line(self._where)
        path = f"/containers/{quote(self._name)}/attach?stream=1&stdin=1"
        self._line.hijack(path, None, f"attach to container {self._name}")
        self._line.stream.sendall(f"{self._folder.token}\n".encode())

    def close(self) -> None:
        """Let go of the container's standard input, which ends it."""
        if self._line is not None:
            self._line.close()
