"""Never run: what type checkers see of the public names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from agentix import Failed, Ok, RemoteCallable, RemoteCallError, Result, RuntimeClient
from agentix.client import Health
from agentix.results import allow_type


@dataclass
class Report:
    """What a function returns."""

    text: str


def make(name: str, *, count: int = 1) -> Report:
    """Be a synchronous function."""
    return Report(name * count)


async def amake(name: str) -> list[Report]:
    """Be an async function."""
    return [Report(name)]


def nothing() -> None:
    """Return nothing."""


async def calls(client: RuntimeClient) -> None:
    """See the function's own type, unwrapped."""
    assert_type(await client.remote(make, "a", count=2), Report)
    assert_type(await client.remote(amake, "a"), list[Report])
    assert_type(await client.try_remote(make, "a"), Result[Report])
    assert_type(await client.try_remote(amake, "a"), Result[list[Report]])
    await client.remote(nothing)


async def wrong_arguments(client: RuntimeClient) -> None:
    """Have arguments checked against the function's signature."""
    await client.remote(make)  # type: ignore[call-overload]
    await client.remote(make, 1)  # type: ignore[call-overload]
    await client.remote(make, "a", size=1)  # type: ignore[call-arg, arg-type]
    await client.remote(amake, "a", "b")  # type: ignore[call-overload]
    await client.try_remote(make, 1)  # type: ignore[call-overload]


async def results(client: RuntimeClient) -> Report:
    """Match on a result."""
    match await client.try_remote(make, "a"):
        case Ok(value):
            assert_type(value, Report)
            return value
        case Failed(error):
            assert_type(error, RemoteCallError)
            raise error


async def around(url: str) -> None:
    """Use the rest of the client."""
    async with RuntimeClient(url, timeout=None, token="secret") as client:
        assert_type(client, RuntimeClient)
        assert_type(await client.health(), Health)
    assert_type(RemoteCallable.validate(make), RemoteCallable)
    assert_type(allow_type(Report), type[Report])
