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
from agentix.wire import messages
from agentix.wire.errors import MalformedError
from agentix.wire.frames import (
    PREFIX,
    Buffer,
    body_head_size,
    body_prefix,
    padded,
    payload_size,
    split_body,
)
from agentix.wire.messages import Failure, Value
from agentix.wire.protocol import CONTENT_TYPE, PROTOCOL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    import aiohttp

    from agentix.client.url import RuntimeURL

_SMALL: Final = 1 << 20
_CHUNK: Final = 256 << 10
_KEEP_ALIVE: Final = 60.0
_HEALTH_TIMEOUT: Final = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The one answer to a call, and its payload taken apart."""

    message: Value | Failure
    document: Buffer = b""
    buffers: Sequence[Buffer] = ()


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

            self._call_url = URL(f"{self._url.base}/call")
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

    async def call(self, head: bytes, parts: Iterable[Buffer], size: int, target: str) -> Answer:
        """Send a call and wait for its answer; cancelling this cancels the call in the sandbox.

        Raises :class:`RuntimeUnreachable` when there is nobody to answer, at once, and
        :class:`~agentix.wire.errors.MalformedError` for an answer that is none.
        """
        import aiohttp

        session = self._open(target)
        prefix = body_prefix(head)
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
                return await _receive(response)
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
        text = (await response.content.read(200)).decode(errors="replace")
        said = f": {' '.join(text.split())}" if text.isprintable() or text.endswith("\n") else ""
        raise self._error(target, "UnexpectedAnswer", f"it answered HTTP {response.status}{said}")

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
        text = f"no answer from the runtime at {self._url.text}: {reason}"
        return RuntimeUnreachable(RemoteErrorInfo(kind, text), target=target)


def _shown(value: object) -> str:
    return str(value)[:40]


async def _json(response: aiohttp.ClientResponse) -> Any:
    import json

    try:
        return json.loads(await response.content.read(_CHUNK))
    except ValueError as exc:
        raise MalformedError("the answer is not JSON") from exc


async def _stream(prefix: bytes, parts: Iterable[Buffer]) -> AsyncIterator[Buffer]:
    yield prefix
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _CHUNK):
            yield view[start : start + _CHUNK]


async def _receive(response: aiohttp.ClientResponse) -> Answer:
    """Read an answer: a small one whole, a large one piece by piece to where it belongs."""
    length = response.content_length
    if length is not None and length <= _SMALL:
        head, payload = split_body(await response.read())
        message = messages.load(head, Value, Failure)
        return _apart(message, payload)
    content = response.content
    try:
        head = await content.readexactly(body_head_size(await content.readexactly(PREFIX.size)))
        message = messages.load(head, Value, Failure)
        if isinstance(message, Failure):
            return Answer(message)
        segments: list[Buffer] = []
        gap = 0
        for kind, size in zip(f"a{message.kinds}", message.segments, strict=True):
            await content.readexactly(gap)
            segments.append(await _segment(content, size, kind))
            gap = padded(size) - size
    except asyncio.IncompleteReadError as exc:
        raise MalformedError("the answer is shorter than it says") from exc
    if not content.at_eof() and await content.read(1):
        raise MalformedError("the answer is longer than it says")
    return Answer(message, segments[0], segments[1:])


async def _segment(content: aiohttp.StreamReader, size: int, kind: str) -> Buffer:
    """Read one segment. Memory grows with what arrives, never by what was announced."""
    left = size
    if kind == "b":
        # BytesIO gives its bytes away without a copy.
        file = io.BytesIO()
        while left:
            left -= file.write(await _some(content, left))
        return file.getvalue()
    memory = bytearray()
    while left:
        piece = await _some(content, left)
        memory += piece
        left -= len(piece)
    return memory


async def _some(content: aiohttp.StreamReader, most: int) -> bytes:
    piece = await content.read(most)
    if not piece:
        raise asyncio.IncompleteReadError(b"", most)
    return piece


def _apart(message: Value | Failure, payload: memoryview) -> Answer:
    if isinstance(message, Failure):
        return Answer(message)
    if len(payload) != payload_size(message.segments):
        raise MalformedError("the answer is not as long as it says")
    at = 0
    segments: list[Buffer] = []
    for kind, size in zip(f"a{message.kinds}", message.segments, strict=True):
        part = payload[at : at + size]
        segments.append(bytes(part) if kind == "b" else bytearray(part))
        at += padded(size)
    return Answer(message, segments[0], segments[1:])
