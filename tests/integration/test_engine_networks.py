"""Which network a container is in: calls work in any, and in none."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from images.bundles import bundle_that_runs

from agentix import Sandbox, SandboxConfig
from agentix.errors import ProviderError
from agentix.testing import probes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engines import EngineUnderTest
    from images.engine import Leftovers

    from agentix.bundle import CachedBundle

LISTENING = "0A"


@pytest.fixture
def config(numpy_bundle: CachedBundle, busybox: str) -> SandboxConfig:
    return SandboxConfig(image=busybox, bundle=str(numpy_bundle.path))


async def routes(sandbox: Sandbox) -> list[str]:
    """Return which interfaces packets can leave by."""
    _, table, _ = await sandbox.remote(probes.run, ["/bin/cat", "/proc/net/route"])
    return [line.split()[0] for line in table.splitlines()[1:]]


@pytest.fixture
def outside() -> Iterator[int]:
    """The port of a server on this machine, at all of its addresses."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.nix
def test_without_a_network_no_way_leads_out_and_calls_work(
    engine: EngineUnderTest, leftovers: Leftovers, config: SandboxConfig, outside: int
) -> None:
    async def look() -> None:
        async with engine.provider(network="none").session(config) as sandbox:
            assert await routes(sandbox) == []
            assert not await sandbox.remote(probes.reaches, address_of_machine(), outside)
            assert await sandbox.remote(probes.loopback)

    asyncio.run(look())


@pytest.mark.nix
def test_the_default_network_leads_out_and_publishes_nothing(
    engine: EngineUnderTest, leftovers: Leftovers, config: SandboxConfig, outside: int
) -> None:
    skip_without_tun(engine)

    async def look() -> None:
        async with engine.provider().session(config) as sandbox:
            assert len(set(await routes(sandbox))) == 1
            assert await sandbox.remote(probes.reaches, address_of_machine(), outside)
            found = engine.inspect(sandbox.sandbox_id)
            assert not any((found["NetworkSettings"]["Ports"] or {}).values())
            assert not found["HostConfig"]["PortBindings"]

    asyncio.run(look())


@pytest.mark.nix
def test_a_network_can_be_chosen_by_name(
    engine: EngineUnderTest, leftovers: Leftovers, config: SandboxConfig
) -> None:
    skip_without_tun(engine)

    async def look(name: str) -> None:
        async with engine.provider(network=name).session(config) as sandbox:
            settings = engine.inspect(sandbox.sandbox_id)["NetworkSettings"]
            assert list(settings["Networks"]) == [name]
            assert await routes(sandbox)
            assert await sandbox.remote(probes.echo, 1) == 1

    with named_network(engine) as name:
        asyncio.run(look(name))


@pytest.mark.nix
def test_the_hosts_network_is_a_choice_in_which_the_runtime_listens_on_no_port(
    engine: EngineUnderTest, leftovers: Leftovers, config: SandboxConfig
) -> None:
    from numpy_task import own_sockets, tcp_table

    async def look(port: int) -> None:
        async with engine.provider(network="host").session(config) as sandbox:
            assert await sandbox.remote(probes.reaches, "127.0.0.1", port)
            sockets = await sandbox.remote(own_sockets)
            assert sockets
            table = [line.split() for line in await sandbox.remote(tcp_table)]
            assert not [line for line in table if line[3] == LISTENING and line[9] in sockets]

    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(look(server.getsockname()[1]))


def test_a_network_that_does_not_exist_is_named(
    engine: EngineUnderTest, leftovers: Leftovers, busybox: str, tmp_path: Path
) -> None:
    bundle = str(bundle_that_runs("exit 1", tmp_path))
    config = SandboxConfig(image=busybox, bundle=bundle)
    reason = f"no-such-network.*`{engine.kind} network ls` shows which there are"
    with pytest.raises(ProviderError, match=reason) as caught:
        asyncio.run(engine.provider(network="no-such-network").create(config))
    assert "\n" not in str(caught.value)


@contextlib.contextmanager
def named_network(engine: EngineUnderTest) -> Iterator[str]:
    """Make a network that leads nowhere, for as long as it is needed."""
    name = f"agentix-test-{secrets.token_hex(4)}"
    network = engine.client.networks.create(name, driver="bridge", internal=True)
    try:
        yield name
    finally:
        network.remove()


def address_of_machine() -> str:
    """Return an address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: the kernel only looks up the way
        except OSError:
            pytest.skip("this machine has no network")
        return str(probe.getsockname()[0])


def skip_without_tun(engine: EngineUnderTest) -> None:
    if engine.rootless:
        try:
            Path("/dev/net/tun").open("rb").close()
        except OSError as error:
            pytest.skip(f"ordinary users have no network here: {error}")
