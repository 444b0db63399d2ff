"""The head of an HTTP/1.1 request, read strictly: what is ambiguous is refused."""

from __future__ import annotations

from typing import Final, NamedTuple

from agentix.wire.errors import MalformedError

END: Final = b"\r\n\r\n"
LONGEST: Final = 16 << 10
_MOST_DIGITS: Final = 19
_METHODS: Final = frozenset({b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"})


class Head(NamedTuple):
    """A request's line and headers; their names are in lower case."""

    method: bytes
    path: bytes
    headers: dict[bytes, bytes]
    length: int
    """Bytes of the body."""


def parse(head: bytes) -> Head:
    """Parse a head without its empty line, or raise MalformedError."""
    line, *lines = head.split(b"\r\n")
    try:
        method, target, version = line.split(b" ")
    except ValueError:
        raise MalformedError("the request line is none") from None
    if version != b"HTTP/1.1" or method not in _METHODS or not target.startswith(b"/"):
        raise MalformedError("this is not a request in HTTP/1.1")
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.lower()
        if not colon or not name or name != name.strip() or name in headers:
            raise MalformedError("a header is malformed, or is there twice")
        headers[name] = value.strip()
    if b"transfer-encoding" in headers:
        raise MalformedError("a body needs a Content-Length")
    digits = headers.get(b"content-length", b"0")
    if not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise MalformedError("the Content-Length is no number")
    return Head(method, target.partition(b"?")[0], headers, int(digits))
