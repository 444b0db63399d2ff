"""One runtime over HTTP: a call out, its answer in, with as few copies of either as can be."""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NoReturn

from agentix.client.health import Health
from agentix.client.held_socket import HeldSocket
from agentix.errors import RemoteErrorInfo, RuntimeUnreachable
from agentix.text import plain
from agentix.wire import messages
from agentix.wire.bodies import Body
from agentix.wire.errors import MalformedError
from agentix.wire.frames import MARK, Buffer, body_prefix, padded, payload_size
from agentix.wire.messages import Call, Failure, Value
from agentix.wire.protocol import CONTENT_TYPE, PROTOCOL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    import aiohttp

    from agentix.client.url import RuntimeURL

_SMALL: Final = 1 << 20
_CHUNK: Final = 256 << 10
_KEEP_ALIVE: Final = 60.0
_HEALTH_TIMEOUT: Final = 10.0
_MOST_JSON: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Answer:
    """The one answer to a call, and its payload taken apart."""

    message: Value | Failure
    segments: list[Buffer]

    @property
    def size(self) -> int:
        """Bytes of its document."""
        return len(self.segments[0]) if self.segments else 0


class Connection:
    """An HTTP session with one runtime. Opens itself on first use, inside the loop that uses it."""

    def __init__(self, url: RuntimeURL, token: str | None) -> None:
        self._url = url
        self._token = token
        self._socket: HeldSocket | None = None
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def _open(self, target: str) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError(f"the client of {self._url.text} is closed")
        if self._session is None:
            import aiohttp
            from yarl import URL

            self._call_url = URL(f"{self._url.base}/rpc")
            # No limit: a call that waits for a connection would count as running. Proxies are for
            # the network; a runtime is never behind one.
            connector: aiohttp.BaseConnector
            if self._url.socket is not None:
                try:
                    self._socket = HeldSocket(self._url.socket)
                except OSError as exc:
                    self._unreachable(exc, target)
                connector = aiohttp.UnixConnector(
                    self._socket.path, limit=0, keepalive_timeout=_KEEP_ALIVE
                )
            else:
                connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE)
            headers = {"Content-Type": CONTENT_TYPE}
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token}"
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=headers,
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
                trust_env=False,
                auto_decompress=False,
                read_bufsize=_SMALL,
            )
        return self._session

    async def close(self) -> None:
        """Close all connections; calls that are under way fail."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await asyncio.sleep(0)  # transports close in the loop's next turn
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def call(self, call: Call, parts: Iterable[Buffer]) -> Answer:
        """Send a call and wait for its answer; cancelling this cancels the call in the sandbox.

        Raises :class:`RuntimeUnreachable` when there is nobody to answer, at once, and
        :class:`~agentix.wire.errors.MalformedError` for an answer that is none.
        """
        import aiohttp

        target = call.target
        session = self._open(target)
        prefix = body_prefix(messages.dump(call))
        size = payload_size(call.segments)
        headers = None
        data: bytes | AsyncIterator[Buffer]
        if size <= _SMALL:
            data = prefix + b"".join(parts)
        else:
            headers = {"Content-Length": str(len(prefix) + size)}
            data = _stream(prefix, parts)
        try:
            async with session.post(
                self._call_url, data=data, headers=headers, allow_redirects=False
            ) as response:
                if response.status != 200:
                    await self._refused(response, target)
                return await _receive(response, call.limit)
        except RuntimeUnreachable:
            raise
        except (aiohttp.ClientError, OSError) as exc:
            self._unreachable(exc, target)
        except RuntimeError as exc:
            if session.closed:
                self._unreachable(exc, target)
            raise

    async def health(self) -> Health:
        """Ask the runtime about itself."""
        import aiohttp

        session = self._open("health")
        try:
            async with (
                asyncio.timeout(_HEALTH_TIMEOUT),
                session.get(f"{self._url.base}/health", allow_redirects=False) as response,
            ):
                if response.status != 200:
                    await self._refused(response, "health")
                health = Health.parse(await _json(response))
        except RuntimeUnreachable:
            raise
        except MalformedError as exc:
            raise self._error("health", "MalformedAnswer", f"{exc}") from exc
        except (aiohttp.ClientError, OSError) as exc:
            self._unreachable(exc, "health")
        if health.protocol != PROTOCOL:
            raise self._other_version("health", health.protocol, health.agentix)
        return health

    async def _refused(self, response: aiohttp.ClientResponse, target: str) -> NoReturn:
        if response.status == 401:
            what = "it wants another secret" if self._token else "it wants its sandbox's secret"
            raise self._error(target, "Unauthorized", f"{what}; pass token= as the sandbox has it")
        if response.status == 426:
            about = await _json(response)
            if type(about) is dict:
                raise self._other_version(
                    target, _shown(about.get("protocol")), _shown(about.get("agentix"))
                )
        text = " ".join((await _read(response, 200)).decode(errors="replace").split())
        said = f"it answered HTTP {response.status}"
        raise self._error(target, "UnexpectedAnswer", f"{said}: {text}" if text else said)

    def _other_version(self, target: str, protocol: object, agentix: object) -> RuntimeUnreachable:
        return self._error(
            target,
            "ProtocolMismatch",
            f"the bundle speaks protocol {protocol} (agentix {agentix}) and this host protocol "
            f"{PROTOCOL} (agentix {version('agentix')}); rebuild the bundle with `agentix build`",
        )

    def _unreachable(self, exc: BaseException, target: str) -> NoReturn:
        if self._closed:
            reason = "the client was closed"
        elif isinstance(exc, TimeoutError):
            reason = "it does not accept connections"
        else:
            system = getattr(exc, "os_error", exc)  # without aiohttp's words around it
            reason = getattr(system, "strerror", None) or str(exc) or type(exc).__name__
        raise self._error(target, "RuntimeUnreachable", reason) from exc

    def _error(self, target: str, kind: str, reason: str) -> RuntimeUnreachable:
        # Much of it the other side has written.
        text = f"no answer from the runtime at {self._url.text}: {plain(reason, 500)}"
        return RuntimeUnreachable(RemoteErrorInfo(kind, text), target=target)


def _shown(value: object) -> str:
    return str(value)[:40] if isinstance(value, int | str) else "?"


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Read a body up to a bound."""
    data = b""
    while len(data) < most and (piece := await response.content.read(most - len(data))):
        data += piece
    return data


async def _json(response: aiohttp.ClientResponse) -> Any:
    import json

    try:
        return json.loads(await _read(response, _MOST_JSON))
    except (ValueError, RecursionError) as exc:
        raise MalformedError("the answer is not JSON") from exc


async def _stream(prefix: bytes, parts: Iterable[Buffer]) -> AsyncIterator[Buffer]:
    yield prefix
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _CHUNK):
            yield view[start : start + _CHUNK]


async def _receive(response: aiohttp.ClientResponse, limit: int) -> Answer:
    """Read an answer, each segment to where it belongs."""
    body = Body(response.content)
    await body.exactly(MARK.size)
    message = messages.load(await body.head(), (Value, Failure))
    segments: list[Buffer] = []
    if isinstance(message, Value):
        if (size := payload_size(message.segments)) > limit:
            raise MalformedError(f"the result takes {size:,} bytes, and {limit:,} are accepted")
        gap = 0
        for kind, size in zip(f"a{message.kinds}", message.segments, strict=True):
            await body.exactly(gap)
            segments.append(await _segment(body, size, kind))
            gap = padded(size) - size
    await body.end()
    return Answer(message, segments)


async def _segment(body: Body, size: int, kind: str) -> Buffer:
    """Read one segment. Memory grows with what arrives, never by what was announced."""
    if kind == "b":
        # BytesIO gives its bytes away without a copy.
        file = io.BytesIO()
        while size:
            size -= file.write(await body.some(size))
        return file.getvalue()
    memory = bytearray()
    while len(memory) < size:
        memory += await body.some(size - len(memory))
    return memory
