"""Never run: what type checkers see of the public names."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_type

from agentix import (
    AsyncClientNamespace,
    Failed,
    Ok,
    RemoteCallable,
    RemoteCallError,
    Result,
    RuntimeClient,
    Sandbox,
    SandboxConfig,
    SandboxProvider,
)
from agentix.client import Health
from agentix.results import allow_type

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator


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


def lines(path: str, *, count: int = 1) -> Iterator[str]:
    """Be a generator function."""
    yield from [path] * count


def counted(path: str) -> Generator[int, str, bool]:
    """Be one that is annotated in full."""
    yield len(path)
    return True


async def reports(name: str) -> AsyncIterator[Report]:
    """Be an async generator function."""
    yield Report(name)


async def agenerated(name: str) -> AsyncGenerator[bytes, None]:
    """Be one that is annotated in full."""
    yield name.encode()


def nothing() -> None:
    """Return nothing."""


async def calls(client: RuntimeClient) -> None:
    """See the function's own type, unwrapped."""
    assert_type(await client.remote(make, "a", count=2), Report)
    assert_type(await client.remote(amake, "a"), list[Report])
    assert_type(await client.try_remote(make, "a"), Result[Report])
    assert_type(await client.try_remote(amake, "a"), Result[list[Report]])
    await client.remote(nothing)


async def streams(client: RuntimeClient) -> None:
    """See the items' type, and close a stream by hand."""
    async for line in client.remote(lines, "a", count=2):
        assert_type(line, str)
    async for number in client.remote(counted, "a"):
        assert_type(number, int)
    async for report in client.remote(reports, "a"):
        assert_type(report, Report)
    async with aclosing(client.remote(agenerated, "a")) as stream:
        assert_type(await anext(stream), bytes)
    iterator: AsyncIterator[str] = client.remote(lines, "a")
    await anext(iterator)
    client.remote(lines, 1)  # type: ignore[call-overload]
    await client.remote(reports, "a")  # type: ignore[misc]
    await client.try_remote(lines, "a")  # type: ignore[misc]
    await client.try_remote(reports, "a")  # type: ignore[misc]


async def sandboxes(provider: SandboxProvider, config: SandboxConfig) -> None:
    """See the same of a sandbox."""
    async with provider.session(config, timeout=None, http_sync_ms=None) as sandbox:
        assert_type(sandbox, Sandbox)
        sandbox.configure(timeout=600, http_sync_ms=100)
        sandbox.configure(timeout=None)
        assert_type(await sandbox.remote(make, "a", count=2), Report)
        assert_type(await sandbox.try_remote(amake, "a"), Result[list[Report]])
        async for report in sandbox.remote(reports, "a"):
            assert_type(report, Report)
        await sandbox.remote(make, 1)  # type: ignore[call-overload]


def host_side(client: RuntimeClient, sandbox: Sandbox, namespace: AsyncClientNamespace) -> None:
    """Register a namespace."""
    client.register_namespace(namespace)
    sandbox.register_namespace(namespace)


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
    async with RuntimeClient(url, timeout=None, http_sync_ms=0, token="secret") as client:
        assert_type(client, RuntimeClient)
        assert_type(await client.health(), Health)
    assert_type(RemoteCallable.validate(make), RemoteCallable)
    assert_type(allow_type(Report), type[Report])
