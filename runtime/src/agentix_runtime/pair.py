"""The pair of sockets between server and worker. Light, since the worker starts before all else."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

WORKER_FD: Final = 3
"""The descriptor at which a worker finds its end."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Make the two ends, with room for a burst of frames."""
    ends = socket.socketpair()
    for end in ends:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return ends
