"""Socket.IO packets, read strictly.

What an event carries is opaque here: a name and a few numbers, texts and byte strings. So a packet
has few elements however long it is, and any other one is refused while it is being read.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack
from socketio.msgpack_packet import MsgPackPacket

from agentix.wire.errors import MalformedError
from agentix.wire.protocol import MAX_EVENT, MAX_NAME

_CONNECT: Final = 0
_DISCONNECT: Final = 1
_EVENT: Final = 2
_ACK: Final = 3
_CONNECT_ERROR: Final = 4
_MAX_ELEMENTS: Final = 4096
_KEYS: Final = frozenset({"type", "data", "nsp", "id"})
_BIG: Final = 1 << 53
_SHORT_MAP: Final = 8
"""The upper half of the byte that a short map begins with."""


class StrictPacket(MsgPackPacket):  # type: ignore[misc]
    """A packet in msgpack; decoding raises MalformedError for whatever is not one."""

    def __init__(self, *arguments: Any, encoded_packet: object = None, **more: Any) -> None:
        if encoded_packet is not None and not encoded_packet:
            raise MalformedError("a packet is empty")  # which would stand for none to be decoded
        super().__init__(*arguments, encoded_packet=encoded_packet, **more)

    def encode(self) -> bytes:
        """Encode the packet."""
        data: bytes = msgpack.packb(self._to_dict(), unicode_errors="surrogatepass")
        if len(data) > MAX_EVENT:
            raise ValueError(f"a packet of {len(data):,} bytes is more than {MAX_EVENT:,}")
        return data

    def decode(self, encoded_packet: object) -> None:
        """Decode a packet, whoever sent it."""
        if type(encoded_packet) is not bytes:
            raise MalformedError("a packet came as text")
        packet = _unpack(encoded_packet)
        if type(packet) is not dict or not packet.keys() <= _KEYS:
            raise MalformedError("a packet is not one")
        self.packet_type = packet.get("type")
        self.namespace = packet.get("nsp")
        self.id = packet.get("id")
        self.data = packet.get("data")
        if not (
            type(self.packet_type) is int
            and is_namespace(self.namespace)
            and (self.id is None or (type(self.id) is int and 0 <= self.id < _BIG))
            and self._has_valid_data()
        ):
            raise MalformedError("a packet is not valid")

    def _has_valid_data(self) -> bool:
        if self.packet_type == _EVENT:
            return type(self.data) is list and bool(self.data) and is_name(self.data[0])
        if self.packet_type == _ACK:
            return type(self.data) is list and self.id is not None
        if self.packet_type == _CONNECT:
            return self.data is None or type(self.data) is dict
        return self.packet_type in (_DISCONNECT, _CONNECT_ERROR)


def is_namespace(name: object) -> bool:
    """Tell whether this can be the name of a namespace."""
    return type(name) is str and name.startswith("/") and len(name) <= MAX_NAME


def is_name(name: object) -> bool:
    """Tell whether this can be the name of an event."""
    return type(name) is str and 0 < len(name) <= MAX_NAME


def _unpack(data: bytes) -> Any:
    left = _MAX_ELEMENTS

    def count(container: list[Any]) -> list[Any]:
        nonlocal left
        left -= len(container)
        if left < 0:
            raise MalformedError("a packet has too many elements")
        return container

    try:
        unpacker = msgpack.Unpacker(
            max_buffer_size=len(data),
            max_array_len=_MAX_ELEMENTS,
            max_map_len=0,
            max_ext_len=0,
            list_hook=count,
            unicode_errors="surrogatepass",
        )
        unpacker.feed(data)
        packet = _mapping(unpacker, data)
        if unpacker.tell() != len(data):
            raise MalformedError("a packet is followed by something else")
        return packet
    except MalformedError:
        raise
    except Exception as exc:  # what msgpack raises for bytes of all kinds
        raise MalformedError(f"a packet cannot be decoded: {type(exc).__name__}") from exc


def _mapping(unpacker: msgpack.Unpacker, data: bytes) -> dict[str, Any]:
    """Read a packet's map, and a short one in it; no key as a key: those may be kept for ever."""
    packet = {}
    count = unpacker.read_map_header()
    for _ in range(min(count, len(_KEYS) + 1)):
        key = unpacker.unpack()
        if data[unpacker.tell()] >> 4 == _SHORT_MAP:
            inner = range(unpacker.read_map_header())
            packet[key] = {unpacker.unpack(): unpacker.unpack() for _ in inner}
        else:
            packet[key] = unpacker.unpack()
    return packet


def event_packet(namespace: str, event: str, *arguments: Any) -> bytes:
    """Encode an event."""
    return StrictPacket(_EVENT, data=[event, *arguments], namespace=namespace).encode()
