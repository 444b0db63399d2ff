"""Plain values, the data of events: None, bool, int, float, str, bytes, lists, and dicts by text.

They cross in both directions, so reading them is safe whatever the bytes are. Lists and dicts cross
as columns (see ``agentix.wire.columns``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgpack

from agentix.wire.columns import fold, unfold
from agentix.wire.errors import MalformedError, UnencodableError
from agentix.wire.protocol import MAX_ELEMENTS, MAX_SIGNAL

if TYPE_CHECKING:
    from agentix.wire.frames import Buffer

_LEAVES: Final = frozenset({type(None), bool, int, float, str, bytes})
_MAX_DEPTH: Final = 100


def dump(value: Any) -> bytes:
    """Encode a plain value; tuples become lists. Raises :class:`UnencodableError` for others."""
    try:
        folded = fold(value, "an event's data", _MAX_DEPTH)
        data: bytes = msgpack.packb(folded, unicode_errors="surrogatepass")
    except (TypeError, ValueError, OverflowError) as exc:
        if isinstance(exc, UnencodableError):
            raise
        raise UnencodableError(f"an event's data cannot be encoded: {exc}") from exc
    if len(data) > MAX_SIGNAL:
        raise UnencodableError(
            f"an event's data of {len(data):,} bytes is more than {MAX_SIGNAL:,}; return it from a "
            "remote call, or send it in parts"
        )
    return data


def load(data: Buffer) -> Any:
    """Decode a plain value, or raise :class:`MalformedError`, in time and memory that are bounded.

    The bytes are looked through once before anything is built from them, so that no length in them
    is larger than what follows it.
    """
    try:
        if len(data) > MAX_SIGNAL:
            raise MalformedError(f"an event's data of {len(data):,} bytes is too long")
        scout = msgpack.Unpacker(max_buffer_size=max(len(data), 1), **_STRICT)
        scout.feed(data)
        scout.skip()
        if scout.tell() != len(data):
            raise MalformedError("an event's data is followed by something else")
        if len(data) > MAX_ELEMENTS:
            _count(data)
        return unfold(msgpack.unpackb(data, **_STRICT), _LEAVES, _MAX_DEPTH)
    except MalformedError:
        raise
    except Exception as exc:  # what msgpack raises for bytes of all kinds
        raise MalformedError(f"an event's data cannot be decoded: {type(exc).__name__}") from exc


def _count(data: Buffer) -> None:
    """Refuse too many elements, without having more than one container at a time."""
    left = MAX_ELEMENTS

    def count(container: list[Any]) -> None:
        nonlocal left
        left -= len(container)
        if left < 0:
            raise MalformedError(f"an event's data has more than {MAX_ELEMENTS:,} elements")

    msgpack.unpackb(data, **_STRICT, max_array_len=MAX_ELEMENTS, list_hook=count)


def _no_extension(code: int, data: bytes) -> Any:
    raise MalformedError("an event's data holds an extension type")


_STRICT: Final[dict[str, Any]] = {
    "max_map_len": 0,
    "unicode_errors": "surrogatepass",
    "ext_hook": _no_extension,
    "timestamp": 1,  # the one extension that is not given to the hook: a float
}
