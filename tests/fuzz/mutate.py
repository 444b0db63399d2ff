"""Spoil valid bytes: anywhere, or where msgpack's structure says that something begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack

from agentix.wire.values import tags

if TYPE_CHECKING:
    from random import Random

_TAGS = [value for name, value in vars(tags).items() if name.isupper() and type(value) is int]
_ODD: list[Any] = [
    None, True, -1, 0, 1, 2, 255, 1 << 31, 1 << 62, (1 << 64) - 1, -(1 << 63), 1.5, float("nan"),
    float("inf"), "", "C", "<f8", "|O", "<M8[0s]", "list", "__class__", "\udc80", "9" * 50,
    "1E+9999999", "os", "system", b"", b"\xff" * 16, b"\0" * 8, [], {}, [[]], {"a": 1},
]  # fmt: skip


def spoil(data: bytes, random: Random) -> bytes:
    """Make other bytes of these: bits flipped, pieces cut, moved, doubled, spliced in."""
    spoiled = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(spoiled))
        length = random.choice((1, 1, 2, 4, 8, 32))
        how = random.randrange(6)
        if how == 0 and at < len(spoiled):
            spoiled[at] ^= 1 << random.randrange(8)
        elif how == 1:
            spoiled[at : at + length] = random.randbytes(length)
        elif how == 2:
            del spoiled[at : at + length]
        elif how == 3:
            spoiled[at:at] = random.randbytes(length)
        elif how == 4:
            other = random.randint(0, len(spoiled))
            spoiled[at:at] = spoiled[other : other + length]
        else:
            del spoiled[at:]
    return bytes(spoiled)


def distort(document: bytes, random: Random) -> bytes:
    """Change a msgpack document's tree and keep it one; bytes that are none are spoiled."""
    try:
        tree = msgpack.unpackb(document, strict_map_key=False, unicode_errors="surrogatepass")
        for _ in range(random.randint(1, 3)):
            tree = _changed(tree, random, 0)
        made: bytes = msgpack.packb(tree, unicode_errors="surrogatepass")
    except Exception:
        return spoil(document, random)
    return made


def _changed(node: Any, random: Random, depth: int) -> Any:
    if depth > 40 or not isinstance(node, list | dict) or not node or random.random() < 0.1:
        return _other(node, random)
    if isinstance(node, dict):
        key = random.choice(list(node))
        return {**node, key: _changed(node[key], random, depth + 1)}
    node = list(node)
    at = random.randrange(len(node))
    how = random.randrange(16)
    if how == 0:
        del node[at]
    elif how == 1:
        node.insert(at, random.choice(_ODD))
    elif how == 2:
        node.insert(at, node[random.randrange(len(node))])
    elif how == 3:
        other = random.randrange(len(node))
        node[at], node[other] = node[other], node[at]
    elif how == 4 and type(node[0]) is int:
        node[0] = random.choice(_TAGS)
    else:
        node[at] = _changed(node[at], random, depth + 1)
    return node


def _other(node: Any, random: Random) -> Any:
    how = random.randrange(4)
    if how == 0:
        return random.choice(_ODD)
    if how == 1:
        return [random.choice(_TAGS), node]
    if type(node) is int:
        return max(-(1 << 63), min(node + random.choice((-1, 1, 256, -65536)), (1 << 64) - 1))
    if type(node) is str:
        return (node[:-1], node + "x", node.swapcase(), node.encode(errors="replace"))[
            random.randrange(4)
        ]
    if type(node) is bytes:
        return node[:-1] if random.random() < 0.5 else node + b"\x80"
    return random.choice(_ODD)
