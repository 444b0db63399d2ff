"""The SDK on connections that are dialled here: to an engine on another machine, whatever the way.

The SDK's own differ in what they can do and in how they fail, and one needs a library of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import docker
import urllib3.connection
import urllib3.connectionpool
from docker.transport.basehttpadapter import BaseHTTPAdapter

from agentix.provider.docker.dialing import dial
from agentix.provider.docker.line import Line

if TYPE_CHECKING:
    import socket

    import requests

    from agentix.provider.docker.address import Address

_BASE = "http+docker://engine"


def client(where: Address, *, timeout: int) -> docker.APIClient:
    """Return the SDK's client of the engine, once that has answered.

    Raises ProviderError when it does not.
    """
    line = Line(where)
    try:
        version = line.version()
        made = docker.APIClient("tcp://engine:1", version=version, timeout=timeout)
    except BaseException:
        line.close()
        raise
    made.mount(_BASE, _Adapter(where, line.stream, timeout))
    made.base_url = _BASE
    return made


class _Connection(urllib3.connection.HTTPConnection):
    def __init__(self, where: Address, first: list[socket.socket], timeout: float) -> None:
        super().__init__("engine", timeout=timeout)
        self._where, self._first = where, first

    def connect(self) -> None:
        self.sock = self._first.pop() if self._first else dial(self._where)
        self.sock.settimeout(self.timeout)


class _Pool(urllib3.connectionpool.HTTPConnectionPool):
    def __init__(self, where: Address, first: socket.socket, timeout: float) -> None:
        super().__init__("engine", maxsize=4)
        self._where, self._first, self._seconds = where, [first], timeout

    def _new_conn(self) -> _Connection:
        return _Connection(self._where, self._first, self._seconds)

    def close(self) -> None:
        super().close()
        while self._first:
            self._first.pop().close()


class _Adapter(BaseHTTPAdapter):
    def __init__(self, where: Address, first: socket.socket, timeout: float) -> None:
        super().__init__()
        self._pool = _Pool(where, first, timeout)

    def get_connection(self, url: str | bytes, proxies: Any = None) -> _Pool:
        return self._pool

    def request_url(self, request: requests.PreparedRequest, proxies: Any) -> str:
        return request.path_url

    def close(self) -> None:
        super().close()
        self._pool.close()
