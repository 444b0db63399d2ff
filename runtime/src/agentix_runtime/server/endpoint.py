"""Where the server listens, and the secret that it wants to hear."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Final, NamedTuple

_BACKLOG: Final = 4096
"""A burst of callers waits in the socket's queue; one that is full refuses Unix connections."""

_LONGEST_PATH: Final = 107
_LONGEST_SECRET: Final = 4096
STANDARD_INPUT: Final = Path("-")


class EndpointError(Exception):
    """The server cannot listen, or cannot read its secret; the message is one line."""


class Endpoint(NamedTuple):
    """A listening socket. Callers may connect as soon as it exists: they wait in its queue."""

    sock: socket.socket
    path: Path | None

    def close(self) -> None:
        """Stop listening and remove the socket's file."""
        self.sock.close()
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()


def listen_unix(path: Path) -> Endpoint:
    """Listen on a Unix socket open to every user; its folder and the secret guard it."""
    if len(str(path).encode()) > _LONGEST_PATH:
        raise EndpointError(f"cannot listen on {path}: its path is over {_LONGEST_PATH} bytes long")
    # The name appears only once the socket listens: whoever sees it can connect.
    unready = path.with_name(path.name[:-1] + ("~" if path.name[-1:] != "~" else "-"))
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(str(unready))
        unready.chmod(0o666)
        sock.listen(_BACKLOG)
        unready.rename(path)
    except OSError as exc:
        sock.close()
        unready.unlink(missing_ok=True)
        raise EndpointError(f"cannot listen on {path}: {exc.strerror}") from exc
    return Endpoint(sock, path)


def listen_tcp(address: str) -> Endpoint:
    """Listen on ``host:port``."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise EndpointError(f"cannot listen on {address}: it is not HOST:PORT")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, _, _, _, where = found[0]
        sock = socket.create_server(where[:2], family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as exc:
        raise EndpointError(f"cannot listen on {address}: {exc}") from exc
    return Endpoint(sock, None)


def take_secret(path: Path) -> str:
    """Read the secret and remove its file, so that nothing that runs later finds it.

    The path ``-`` is standard input, of which it is the first line.
    """
    try:
        if path == STANDARD_INPUT:
            with open(0, "rb", buffering=0, closefd=False) as file:
                secret = file.readline(_LONGEST_SECRET).decode("ascii").strip()
        else:
            secret = path.read_text("ascii").strip()
            path.unlink()
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise EndpointError(f"cannot take the secret from {path}: {reason}") from exc
    if len(secret) < 16:
        raise EndpointError(f"cannot use the secret in {path}: it is too short")
    return secret
