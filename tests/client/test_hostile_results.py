"""A hostile result ends its own call in one typed error; the connection and other calls live on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
from fuzz.bounds import REFUSED, known
from local_runtime import far
from local_runtime.raw import Connection, body, http, raw_server

from agentix import Failed, Ok
from agentix.wire.messages import Call, Noted, Value

if TYPE_CHECKING:
    from pathlib import Path

_FEW = 10_000
ONE = b"\x92\x90\x01"


def encoded(made: Any) -> bytes:
    """Encode what is not encoded yet."""
    document: bytes = made if type(made) is bytes else msgpack.packb(made)
    return document


@pytest.mark.parametrize("what", REFUSED)
async def test_a_hostile_result_harms_no_other_call(tmp_path: Path, what: str) -> None:
    size, make = REFUSED[what]
    hostile = encoded(make(min(size, _FEW)))
    connections = set()

    async def serve(connection: Connection, request: Any) -> bool:
        if isinstance(request, Call):
            connections.add(id(connection))
            bad = request.target.endswith("::known")
            document = hostile if bad else ONE
            value = Value(request.id, "values", "", (len(document),))
            await connection.send(http(body(value, payload=document)))
        else:
            await connection.send(http(body(Noted())))
        return True

    async with raw_server(tmp_path, serve) as client:
        for _ in range(2):
            result = await client.try_remote(known)
            assert isinstance(result, Failed), result
            assert result.error.error.type in ("MalformedResult", "RestrictedUnpickleError")
            assert "\n" not in str(result.error)
            assert await client.try_remote(far.noop) == Ok(1)
        assert len(connections) == 1
        mixed = (known, far.noop) * 5
        found = await asyncio.gather(*(client.try_remote(one) for one in mixed))
        assert [type(one) for one in found] == [Failed, Ok] * 5
