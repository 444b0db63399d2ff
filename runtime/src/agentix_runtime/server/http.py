"""The HTTP side of the runtime. It never runs the user's code, nor lets that code hold it up.

    GET  /health    how the runtime is
    POST /rpc       a request of agentix.wire.messages, and its answer

Every request needs the sandbox's secret.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import os
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from aiohttp import web

from agentix.wire import messages
from agentix.wire.bodies import Body
from agentix.wire.errors import MalformedError
from agentix.wire.frames import MARK, PREFIX, body_prefix, payload_size
from agentix.wire.messages import Call
from agentix.wire.protocol import CONTENT_TYPE, MAX_HEAD, MAX_INLINE, MAX_PAYLOAD, PROTOCOL
from agentix_runtime.parcel import Parcel

if TYPE_CHECKING:
    from agentix_runtime.channel import Payload
    from agentix_runtime.server.supervisor import Supervisor

_LARGEST_BODY: Final = PREFIX.size + MAX_HEAD + MAX_PAYLOAD


class Server:
    """Answers requests; ``handle`` is an aiohttp request handler."""

    def __init__(self, supervisor: Supervisor, secret: str) -> None:
        self._supervisor = supervisor
        self._credentials = f"Bearer {secret}".encode()

    @functools.cached_property
    def _about(self) -> dict[str, object]:
        return {
            "status": "ok",
            "protocol": PROTOCOL,
            "agentix": version("agentix"),
            "python": platform.python_version(),
            "libc": " ".join(platform.libc_ver()),
            "pid": os.getpid(),
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if not hmac.compare_digest(given, self._credentials):
            return web.Response(status=401, text="this runtime needs its sandbox's secret\n")
        method, path = request.method, request.path
        if method == "GET" and path == "/health":
            return web.json_response(self._about | {"worker": {"pid": self._supervisor.worker_pid}})
        if method == "POST" and path == "/rpc":
            if request.headers.get("Content-Type") != CONTENT_TYPE:
                return web.json_response(self._about, status=426)
            try:
                return await self._call(request)
            except MalformedError as exc:
                return web.Response(status=400, text=f"{exc}\n")
        return web.Response(status=404, text="there is nothing here\n")

    async def _call(self, request: web.BaseRequest) -> web.StreamResponse:
        if (request.content_length or 0) > _LARGEST_BODY:
            return web.Response(status=413, text="the arguments are larger than calls may have\n")
        head, call, payload = await _receive(request)
        answer, result = await self._supervisor.call(head, call, payload)
        if isinstance(result, Parcel):
            return await _send_parcel(request, answer, result)
        return web.Response(body=MARK.pack(0) + body_prefix(answer) + result)


async def _receive(request: web.BaseRequest) -> tuple[bytes, Call, Payload]:
    """Read a call: a short payload into memory of this process, a long one into shared memory."""
    body = Body(request.content)
    head = bytes(await body.head())
    call = messages.load(head, Call)
    size = payload_size(call.segments)
    if size <= MAX_INLINE:
        payload = await body.exactly(size)
        await body.end()
        return head, call, payload
    parcel = Parcel.empty()
    try:
        while parcel.size < size:
            parcel.write(await body.some(size - parcel.size))
        parcel.seal()
        await body.end()
    except BaseException:
        parcel.close()
        raise
    return head, call, parcel


async def _send_parcel(
    request: web.BaseRequest, answer: bytes, result: Parcel
) -> web.StreamResponse:
    """Send an answer whose payload goes from shared memory to the socket inside the kernel."""
    try:
        response = web.StreamResponse()
        prefix = MARK.pack(0) + body_prefix(answer)
        response.content_length = len(prefix) + result.size
        response.content_type = "application/octet-stream"
        await response.prepare(request)
        await response.write(prefix)
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the caller went away")
        with open(result.fd, "rb", buffering=0, closefd=False) as file:  # noqa: ASYNC230
            await asyncio.get_running_loop().sendfile(transport, file, 0, result.size)
        await response.write_eof()
        return response
    finally:
        result.close()
