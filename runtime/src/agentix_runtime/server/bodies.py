"""The body of a request as it arrives: a message, then as much payload as it announces.

A short payload is gathered in this process's memory, a long one goes into shared memory at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from agentix.wire import messages
from agentix.wire.errors import MalformedError
from agentix.wire.frames import PREFIX, Buffer, body_head_size, payload_size
from agentix.wire.messages import Call
from agentix.wire.protocol import MAX_HEAD, MAX_INLINE, MAX_PAYLOAD
from agentix_runtime.parcel import Parcel
from agentix_runtime.server.calls import REQUESTS, Request

if TYPE_CHECKING:
    from agentix_runtime.parcel import Payload

LARGEST: int = PREFIX.size + MAX_HEAD + MAX_PAYLOAD


class Body:
    """A body of a known length, fed piece by piece. It takes no more memory than has arrived."""

    __slots__ = ("_begin", "_gathered", "_length", "_parcel", "_request", "head", "left")

    def __init__(self, length: int) -> None:
        self.left = self._length = length
        """Bytes that are still to come."""
        self.head = b""
        self._request: Request | None = None
        self._begin = 0
        self._gathered: bytes | bytearray = b""
        self._parcel: Parcel | None = None

    def feed(self, data: bytes) -> Request | None:
        """Take a piece, not more than is left; give the request once all is there.

        Raises MalformedError if this is no request, and OSError if there is no room for it.
        """
        self.left -= len(data)
        if self._parcel is not None:
            self._parcel.write(data)
        elif not self._gathered:
            self._gathered = data
        elif isinstance(self._gathered, bytearray):
            self._gathered += data
        else:
            self._gathered = bytearray(self._gathered + data)
        if self._request is None:
            self._read()
        return None if self.left else self._request

    def payload(self) -> Payload:
        """Give the payload of the whole body away."""
        if self._parcel is None:
            return memoryview(self._gathered)[self._begin :]
        parcel, self._parcel = self._parcel, None
        try:
            parcel.seal()
        except OSError:
            parcel.close()
            raise
        return parcel

    def close(self) -> None:
        """Let go of what was not given away."""
        if self._parcel is not None:
            self._parcel.close()

    def _read(self) -> None:
        data: Buffer = self._gathered
        if len(data) >= PREFIX.size:
            self._begin = PREFIX.size + body_head_size(data)
            if len(data) >= self._begin:
                self.head = bytes(data[PREFIX.size : self._begin])
                request = messages.load(self.head, REQUESTS)
                self._request = cast("Request", request)
                self._expect(self._request)
                return
        if not self.left:
            raise MalformedError("the body ends before its message does")

    def _expect(self, request: Request) -> None:
        size = payload_size(request.segments) if isinstance(request, Call) else 0
        if self._length != self._begin + size:
            raise MalformedError("the body is not as long as its message says")
        if size > MAX_INLINE:
            self._parcel = Parcel.empty()
            self._parcel.write(memoryview(self._gathered)[self._begin :])
            self._gathered = b""
