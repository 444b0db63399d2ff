"""A body is read as far as it says and no further, in whatever pieces it comes."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentix.wire.bodies import Body
from agentix.wire.errors import MalformedError
from agentix.wire.frames import body_prefix
from agentix.wire.protocol import MAX_HEAD


class Arriving:
    """Bytes that come in pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = deque(piece for piece in pieces if piece)

    async def readany(self) -> bytes:
        return self.pieces.popleft() if self.pieces else b""


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = [0, *sorted(one % (len(data) + 1) for one in at), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


@given(st.binary(max_size=40), st.binary(max_size=40), st.lists(st.integers(0, 100), max_size=8))
def test_a_body_comes_apart_as_it_was_put_together(head: bytes, rest: bytes, at: list[int]) -> None:
    async def scenario() -> None:
        body = Body(Arriving(*cut(body_prefix(head) + rest, at)))
        assert bytes(await body.head()) == head
        assert bytes(await body.exactly(len(rest))) == rest
        await body.end()

    asyncio.run(scenario())


@pytest.mark.parametrize("data", [b"", b"\x01\x00", b"\x05\x00\x00\x00abc"])
async def test_one_that_ends_too_soon_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError, match="ends before"):
        await Body(Arriving(data)).head()


async def test_one_that_goes_on_is_malformed() -> None:
    for pieces in ([b"abcd"], [b"abc", b"d"]):
        body = Body(Arriving(*pieces))
        await body.exactly(3)
        with pytest.raises(MalformedError, match="longer"):
            await body.end()


async def test_a_message_that_is_too_long_is_refused_before_it_comes() -> None:
    arriving = Arriving((MAX_HEAD + 1).to_bytes(4, "little"), b"x")
    with pytest.raises(MalformedError, match="longer than"):
        await Body(arriving).head()
    assert arriving.pieces
