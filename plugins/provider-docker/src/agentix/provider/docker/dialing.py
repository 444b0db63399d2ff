"""A connection to an engine on another machine: one stream of bytes, by TCP, TLS or ssh.

What is at its other end is gone within :data:`SILENCE` seconds also when nobody says so, as when a
cable is pulled: the streams below ask every few seconds.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from agentix.errors import ProviderError
from agentix.provider.docker import shell
from agentix.provider.docker.problems import one_line

if TYPE_CHECKING:
    from agentix.provider.docker.address import Address, Tls

CONNECT: Final = 10.0
"""Seconds that it may take to reach the other machine."""

SILENCE: Final = 15
"""Seconds after which one that does not answer is taken for gone."""

EVERY: Final = 5
_PORTS: Final = {False: 2375, True: 2376}

_log = logging.getLogger("agentix.provider.docker")
_said: set[str] = set()  # once a process is enough
_saying = threading.Lock()


def dial(where: Address) -> socket.socket:
    """Return a new connection to the engine, which blocks.

    Raises ProviderError when there is no way there. With ssh, that may only show when the
    connection is used; see :func:`why_it_ended`.
    """
    try:
        url = urlsplit(where.url)
        host, port = url.hostname or "", url.port
    except ValueError as error:
        raise ProviderError(f"{where.url} is no address of an engine: {error}") from error
    if not host or host.startswith("-") or (url.username or "").startswith("-"):
        raise ProviderError(f"{where.url} is no address of an engine: it names no host")
    if url.scheme == "ssh":
        return shell.connect(url.username, host, port, url.path, within=CONNECT, silence=SILENCE)
    if where.tls is None:
        _warn(where, host)
    try:
        stream = socket.create_connection((host, port or _PORTS[where.tls is not None]), CONNECT)
    except OSError as error:
        raise ProviderError(
            f"cannot reach the {where.kind.title()} engine at {where.url}: {_why(error)}; check"
            " DOCKER_HOST and that it is up"
        ) from error
    try:
        _ask_often(stream)
        if where.tls is not None:
            stream = _protected(stream, where, where.tls, host)
        stream.settimeout(None)
    except BaseException:
        stream.close()
        raise
    return stream


def why_it_ended(stream: socket.socket) -> str:
    """Return what is known of a connection that ended too early; empty when that is nothing."""
    return stream.last_words() if isinstance(stream, shell.ShellSocket) else ""


def _ask_often(stream: socket.socket) -> None:
    for level, option, value in (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, EVERY),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, EVERY),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENCE // EVERY - 1),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE * 1000),
    ):
        stream.setsockopt(level, option, value)


def _protected(stream: socket.socket, where: Address, tls: Tls, host: str) -> ssl.SSLSocket:
    try:
        context = ssl.create_default_context(cafile=tls.ca if tls.verify else None)
        # Set from Python 3.13 on: it refuses an authority that does not say what its key is for,
        # as those made by Docker's own instructions do not, and its command accepts them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
        return context.wrap_socket(stream, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        why = f"its certificate is not to be trusted: {error.verify_message}"
        hint = f"check {tls.ca or 'ca.pem in DOCKER_CERT_PATH'}"
    except OSError as error:  # also every other SSLError
        why, hint = _why(error), "check the files in DOCKER_CERT_PATH and that it speaks TLS there"
    raise ProviderError(
        f"no TLS with the {where.kind.title()} engine at {where.url}: {why}; {hint}"
    )


def _warn(where: Address, host: str) -> None:
    """Say that anybody could listen, unless nobody else is on the way."""
    with _saying:
        if where.url in _said or host in {"localhost", "::1"} or host.startswith("127."):
            return
        _said.add(where.url)
    _log.warning(
        "%s is used without TLS: whoever is on the way to it can read everything and use it; set"
        " DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, or use ssh://",
        where.url,
    )


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT:g} s"
    return one_line(error.strerror or error)
