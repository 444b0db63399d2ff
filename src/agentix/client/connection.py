"""One runtime over HTTP: a request out, its answer in, and in words what is wrong where it is not.

A request that meets a lost connection raises :class:`ConnectionLost`, for its sender to ask again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from agentix.client.answers import WORDS, Answer, Expected, Refusal, Section
from agentix.client.health import Health
from agentix.client.http import ConnectionLost, NotConnected, Pool, Unsettled
from agentix.errors import RemoteErrorInfo, RuntimeUnreachable
from agentix.text import plain
from agentix.wire import messages
from agentix.wire.errors import MalformedError
from agentix.wire.frames import Buffer, body_prefix, payload_size
from agentix.wire.messages import (
    Await,
    Call,
    Cancel,
    Failure,
    Follow,
    Item,
    Leave,
    Next,
    Noted,
    Pending,
    Records,
    Value,
)
from agentix.wire.protocol import CONTENT_TYPE, MAX_RECORD, MAX_RESULT, PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentix.client.url import RuntimeURL

__all__ = ["Answer", "Connection", "ConnectionLost", "NotConnected", "Section", "Unsettled"]

Request: TypeAlias = Call | Await | Next | Cancel | Follow | Leave

_SMALL: Final = 128 << 10
"""Up to so many bytes, a request is put together and sent at once."""

_HEALTH_TIMEOUT: Final = 10.0
_PATIENCE: Final = 30.0
"""Seconds that an answer may be late, or that a body may stand still."""

_MOST_WORDS: Final = 200

_MOST_SECTIONS: Final = 128
_ENDS: Final = (Value, Failure, Pending)
_EXPECTED: Final[dict[type[Request], Expected]] = {
    Call: Expected(_ENDS, MAX_RESULT),
    Await: Expected(_ENDS, MAX_RESULT),
    Next: Expected((Item, *_ENDS), MAX_RESULT, _MOST_SECTIONS),
    Follow: Expected((Records,), 4 * MAX_RECORD),
    Cancel: Expected((Noted,), 0),
    Leave: Expected((Noted,), 0),
}


class Connection:
    """The requests of one client. Connects on first use, inside the loop that uses it."""

    def __init__(self, url: RuntimeURL, token: str | None) -> None:
        self._url = url
        self._token = token
        self._pool = Pool(url)
        self.closed = False
        """Whether there will be no more requests, but for a farewell."""
        host = f"Host: {url.base.removeprefix('http://')}\r\n"
        if token is not None:
            if not token.isprintable():
                raise ValueError("the token has characters that no secret has")
            host += f"Authorization: Bearer {token}\r\n"
        self._get = f"GET /health HTTP/1.1\r\n{host}\r\n".encode()
        self._post = (
            f"POST /rpc HTTP/1.1\r\n{host}Content-Type: {CONTENT_TYPE}\r\nContent-Length: "
        ).encode()

    def end(self) -> bool:
        """Break off the requests that are under way; tell whether this was the first time."""
        first, self.closed = not self.closed, True
        self._pool.end()
        return first

    async def close(self) -> None:
        """Close all connections for good."""
        self.closed = True
        await self._pool.close()

    async def ask(
        self, request: Request, parts: Iterable[Buffer] = (), *, target: str = ""
    ) -> Answer:
        """Send a request with the parts of its payload, and return the answer.

        Raises ConnectionLost; :class:`RuntimeUnreachable`, which names *target*, when the runtime
        refuses it; and :class:`~agentix.wire.errors.MalformedError` for an answer that is none.
        """
        head = messages.dump(request)
        size = payload_size(request.segments) if type(request) is Call else 0
        start = b"%b%d\r\n\r\n%b" % (self._post, 4 + len(head) + size, body_prefix(head))
        if size <= _SMALL:
            start, parts = b"".join((start, *parts)), ()

        patience = _PATIENCE + getattr(request, "wait", 0) / 1000
        answer = await self._pool.request(start, parts, _EXPECTED[type(request)], patience)
        if isinstance(answer, Refusal):
            self._refused(answer, target)
        return answer

    def parse(self, request: Request, data: bytes) -> Answer:
        """Read the answer to a request that has come another way."""
        return _EXPECTED[type(request)].parse(data)

    async def health(self) -> Health:
        """Ask the runtime about itself."""
        self.check_open()
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT):
                answer = await self._pool.request(self._get, (), WORDS, _HEALTH_TIMEOUT)
            if answer.status != 200:
                self._refused(answer, "health")
            health = Health.parse(_json(answer.text))
        except MalformedError as exc:
            raise self.error("health", "MalformedAnswer", f"{exc}") from exc
        except TimeoutError as exc:
            raise self.unreachable(ConnectionLost("it does not answer"), "health") from exc
        except ConnectionLost as exc:
            raise self.unreachable(exc, "health") from exc
        if health.protocol != PROTOCOL:
            raise self._other_version("health", health.protocol, health.agentix)
        return health

    def unreachable(self, exc: ConnectionLost, target: str) -> RuntimeUnreachable:
        """Make the error of a request that cannot be made."""
        reason = "the client was closed" if self.closed else str(exc)
        return self.error(target, "RuntimeUnreachable", reason)

    def error(self, target: str, kind: str, reason: str) -> RuntimeUnreachable:
        """Make an error that names the runtime."""
        # Much of it the other side has written.
        text = f"no answer from the runtime at {self._url.text}: {plain(reason, 500)}"
        return RuntimeUnreachable(RemoteErrorInfo(kind, text), target=target)

    def check_open(self) -> None:
        """Raise RuntimeError if the client is closed."""
        if self.closed:
            raise RuntimeError(f"the client of {self._url.text} is closed")

    def _refused(self, answer: Refusal, target: str) -> NoReturn:
        if answer.status == 401:
            what = "it wants another secret" if self._token else "it wants its sandbox's secret"
            raise self.error(target, "Unauthorized", f"{what}; pass token= as the sandbox has it")
        if answer.status == 426:
            about = _json(answer.text)
            if type(about) is dict:
                raise self._other_version(
                    target, _shown(about.get("protocol")), _shown(about.get("agentix"))
                )
        text = " ".join(answer.text[:_MOST_WORDS].decode(errors="replace").split())
        said = f"it answered HTTP {answer.status}"
        raise self.error(target, "UnexpectedAnswer", f"{said}: {text}" if text else said)

    def _other_version(self, target: str, protocol: object, agentix: object) -> RuntimeUnreachable:
        from importlib.metadata import version

        return self.error(
            target,
            "ProtocolMismatch",
            f"the bundle speaks protocol {protocol} (agentix {agentix}) and this host protocol "
            f"{PROTOCOL} (agentix {version('agentix')}); rebuild the bundle with `agentix build`",
        )


def _shown(value: object) -> str:
    return str(value)[:40] if isinstance(value, int | str) else "?"


def _json(body: bytes) -> Any:
    import json

    try:
        return json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise MalformedError("the answer is not JSON") from exc
