"""The end of TCP connections whose other machine has gone without a word.

A machine that is there acknowledges what it gets, and is asked for that now and then, however busy
or stopped its programs are, and however little they read. ``TCP_USER_TIMEOUT`` would end
connections of those, too, and keepalive alone asks nobody while there is something to send.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

_INFO: Final = struct.Struct("8B13I")
"""The begin of Linux's ``struct tcp_info``."""

_PROBES, _UNACKED, _DATA, _ACK = 3, 12, 19, 20
"""Where it has the probes and the segments without an answer, and the milliseconds since there
was the last data and the last answer."""


def watch(transport: asyncio.Transport, seconds: float) -> None:
    """Abort a connection once the other side's machine has not answered for about so long."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is None or sock.family == socket.AF_UNIX:
        return
    ask = max(1, int(seconds / 3))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, ask)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ask)
    loop = asyncio.get_running_loop()

    def look() -> None:
        if not transport.is_closing():
            if _silent(sock) > seconds:
                transport.abort()
            else:
                loop.call_later(ask, look)

    loop.call_later(ask, look)


def _silent(sock: socket.socket) -> float:
    """Tell for how many seconds the other side has owed an answer; about, and 0 if it owes none."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    if len(info) < _INFO.size:  # another kernel than Linux
        return 0
    values = _INFO.unpack(info)
    # The first probe may only just have been sent.
    owes = values[_UNACKED] > 0 or values[_PROBES] > 1
    return min(values[_DATA], values[_ACK]) / 1000 if owes else 0
