"""Sandboxes on an engine of another machine: with TLS, by ssh, and without either."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import far_engine
import pytest
from images.engine import loaded
from patience import eventually, eventually_async
from stub_runtime import python

from agentix import SandboxConfig
from agentix.errors import ImageError, ProviderError, RuntimeUnreachable, SandboxNotFound
from agentix.provider.base import SandboxId
from agentix.provider.docker import DockerProvider, DockerProviderConfig, dialing, forwarding
from agentix.provider.kit import LEASE_ENDED, RuntimeFolder
from agentix.testing import probes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from far_engine import FarEngine, Tap
    from images import TaskImage

    from agentix.bundle import CachedBundle

pytestmark = [pytest.mark.far, pytest.mark.nix]

MIB = 1 << 20
BOUND = 12.0
"""Seconds in which a connection that was cut is noticed, and given up."""

HOST = """
    import asyncio, os, sys, time
    from agentix import SandboxConfig
    from agentix.provider.docker import DockerProvider, DockerProviderConfig

    lease, image, bundle, *ids = sys.argv[1:]
    provider = DockerProvider(DockerProviderConfig(lease=float(lease)))

    async def main():
        if ids:
            sandbox = await provider.get(ids[0])
        else:
            sandbox = await provider.create(SandboxConfig(image=image, bundle=bundle))
        await sandbox.health()
        if os.fork() == 0:  # what it forks holds nothing
            os.close(1)
            time.sleep(60)
            os._exit(0)
        print(sandbox.sandbox_id, flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())
"""


@pytest.fixture(scope="module")
def far() -> Iterator[FarEngine]:
    with far_engine.far_engine() as engine:
        yield engine


@pytest.fixture(scope="module")
def config(
    far: FarEngine, task_image: Callable[[str], TaskImage], numpy_bundle: CachedBundle
) -> Iterator[SandboxConfig]:
    with loaded(far.client, task_image("busybox")) as tag:
        yield SandboxConfig(image=tag, bundle=str(numpy_bundle.path))


@pytest.fixture(autouse=True)
def nothing_stays(far: FarEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a runtime folder; nothing is left in it or in the engine but the bundle, if whole."""
    for name in ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    runtime = Path(tempfile.mkdtemp(prefix="agentix-test-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    try:
        yield runtime / "agentix"
        assert containers(far) == []
        assert list(runtime.glob("agentix/*-*")) == []
    finally:
        for each in far.client.api.containers(all=True):
            far.client.api.remove_container(each["Id"], v=True, force=True)
        shutil.rmtree(runtime)


def containers(far: FarEngine) -> list[str]:
    return [each["Names"][0] for each in far.client.api.containers(all=True)]


def volumes(far: FarEngine) -> list[str]:
    return [each["Name"] for each in far.client.api.volumes()["Volumes"] or ()]


def use(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["tls", "ssh"])
def way(request: pytest.FixtureRequest, far: FarEngine, monkeypatch: pytest.MonkeyPatch) -> str:
    """The ways by which machines are reached; each in turn is the one that is used."""
    if request.param == "ssh" and (reason := far_engine.missing_ssh()):
        pytest.skip(reason)
    use(getattr(far, request.param), monkeypatch)
    return str(request.param)


@pytest.fixture
def tap(far: FarEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tap]:
    """A way without TLS that counts, and can be cut; it is the one that is used."""
    with far.plain() as tap:
        monkeypatch.setenv("DOCKER_HOST", tap.url)
        yield tap


async def test_calls_values_and_streams_pass(
    far: FarEngine, way: str, config: SandboxConfig
) -> None:
    import numpy_task

    async with DockerProvider().session(config) as sandbox:
        assert (await sandbox.remote(numpy_task.process)).libc.startswith("glibc")
        large = os.urandom(64 * MIB)
        assert await sandbox.remote(probes.echo, large) == large
        async with contextlib.aclosing(sandbox.remote(numpy_task.ticks, 0.01)) as ticks:
            assert [await anext(ticks) for _ in range(3)] == [0, 1, 2]
        calls = (sandbox.remote(probes.echo, number) for number in range(20))
        assert await asyncio.gather(*calls) == list(range(20))
        # Nothing of it needs a network in there, and there is none.
        assert await sandbox.remote(probes.interfaces) == ["lo"]
        assert await sandbox.remote(numpy_task.tcp_table) == []


async def test_the_secret_is_in_no_place_where_others_see_it(
    tap: Tap, far: FarEngine, config: SandboxConfig, nothing_stays: Path
) -> None:
    async with DockerProvider().session(config) as sandbox:
        folder, _ = RuntimeFolder.find(sandbox.sandbox_id)
        inside = await sandbox.remote(probes.commands), await sandbox.remote(probes.environment)
        found = far.client.api.inspect_container(f"agentix-{sandbox.sandbox_id}")
        runs = [far.client.api.exec_inspect(each) for each in found["ExecIDs"]]
        for place in (*inside, found, runs, far.client.api.logs(found["Id"]).decode()):
            assert folder.token not in json.dumps(place)
        assert await sandbox.remote(probes.entries, "/nix/run") == ["s"]
        assert not (folder.mount / "token").exists()


async def test_the_bundle_is_sent_once(
    tap: Tap, far: FarEngine, config: SandboxConfig, numpy_bundle: CachedBundle
) -> None:
    forget_bundle(far)
    size = sum(each.size for each in numpy_bundle.manifest.closure.values())
    # Two at the same moment: one sends it, the other one waits.
    await asyncio.gather(*(first_result(config) for _ in range(2)))
    assert size < tap.sent < 1.2 * size
    before = tap.sent
    await first_result(config)
    assert tap.sent - before < MIB


async def test_what_was_interrupted_is_gone_on_with(
    tap: Tap, far: FarEngine, config: SandboxConfig, numpy_bundle: CachedBundle
) -> None:
    forget_bundle(far)
    size = sum(each.size for each in numpy_bundle.manifest.closure.values())
    failing = asyncio.create_task(first_result(config))
    # Half of it may be one part, numpy's, and the first: what comes when is for digests to say.
    await eventually_async(lambda: tap.sent > 0.8 * size, "most of it is sent")
    tap.cut()
    with pytest.raises(ProviderError):
        await failing
    assert containers(far) == []
    before = tap.sent
    await first_result(config)
    assert tap.sent - before < 0.8 * size


async def test_a_connection_that_breaks_while_a_sandbox_is_deleted_leaves_none(
    tap: Tap, far: FarEngine, config: SandboxConfig
) -> None:
    sandbox = await DockerProvider().create(config)
    tap.cut_before = b"DELETE /"
    await DockerProvider().delete(sandbox.sandbox_id)
    assert not tap.cut_before, "it broke"
    assert containers(far) == []
    await sandbox.aclose()


async def test_a_shipper_that_was_killed_stands_in_nobodys_way(
    tap: Tap, far: FarEngine, config: SandboxConfig
) -> None:
    forget_bundle(far)
    with host(config, say=False) as (process, _):
        eventually(lambda: any("ship" in each for each in containers(far)), "it sends")
        process.kill()
    await first_result(config)
    await prune()


async def test_a_cancelled_shipment_leaves_nothing(
    tap: Tap, far: FarEngine, config: SandboxConfig
) -> None:
    forget_bundle(far)
    task = asyncio.create_task(first_result(config))
    await eventually_async(lambda: tap.sent > 20 * MIB, "some of it is sent")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert containers(far) == []
    assert volumes(far) == []


async def test_a_call_outlives_its_connections(tap: Tap, config: SandboxConfig) -> None:
    async with DockerProvider(DockerProviderConfig(lease=2)).session(config) as sandbox:
        pid = (await sandbox.health()).pid
        call = asyncio.create_task(sandbox.remote(probes.nap, 4.0))
        await asyncio.sleep(1)
        tap.cut()
        assert await call == 4.0
        # The lease would be over, had the hold not been taken up again.
        assert (await sandbox.health()).pid == pid


async def test_a_call_survives_the_ssh_that_carries_it(
    far: FarEngine, monkeypatch: pytest.MonkeyPatch, config: SandboxConfig
) -> None:
    if reason := far_engine.missing_ssh():
        pytest.skip(reason)
    use(far.ssh, monkeypatch)
    async with DockerProvider().session(config) as sandbox:
        await sandbox.health()
        call = asyncio.create_task(sandbox.remote(probes.nap, 2.0))
        await asyncio.sleep(0.5)
        for pid in children("ssh"):
            os.kill(pid, signal.SIGKILL)
        assert await call == 2.0


async def test_a_cable_that_is_pulled_ends_calls_within_a_bound(
    far: FarEngine, monkeypatch: pytest.MonkeyPatch, config: SandboxConfig
) -> None:
    use(far.tls, monkeypatch)
    for module, name, seconds in (
        (dialing, "SILENCE", 3),
        (dialing, "EVERY", 1),
        (dialing, "CONNECT", 2.0),
        (forwarding, "PATIENCE", 3.0),
    ):
        monkeypatch.setattr(module, name, seconds)
    async with DockerProvider().session(config) as sandbox:
        await sandbox.health()
        far.pull_cable(out=True)
        began = time.monotonic()
        try:
            with pytest.raises(RuntimeUnreachable):
                await sandbox.remote(probes.echo, 1)
            assert time.monotonic() - began < BOUND
        finally:
            far.pull_cable(out=False)
        assert await sandbox.remote(probes.echo, 2) == 2


async def test_a_container_ends_with_the_process_that_held_it(
    way: str, far: FarEngine, config: SandboxConfig
) -> None:
    def ended() -> bool:
        state = far.client.api.inspect_container(f"agentix-{sandbox_id}")["State"]
        return not state["Running"] and state["ExitCode"] == LEASE_ENDED

    with host(config, lease=1) as (process, sandbox_id):
        process.kill()  # and not what it has forked
        await eventually_async(ended, "its lease ends it", within=20)
    with pytest.raises(SandboxNotFound):
        await DockerProvider().get(sandbox_id)
    await DockerProvider().delete(sandbox_id)


async def test_other_processes_find_hold_and_delete_it(
    way: str, far: FarEngine, config: SandboxConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = DockerProvider(DockerProviderConfig(lease=1))
    with contextlib.ExitStack() as stack:
        first, sandbox_id = stack.enter_context(host(config, lease=1))
        _, same = stack.enter_context(host(config, sandbox_id, lease=1))
        assert same == sandbox_id
        first.kill()
        await asyncio.sleep(3)
        # The record knows where it is, whatever is chosen now.
        for name in ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
            monkeypatch.delenv(name, raising=False)
        async with await provider.get(sandbox_id) as sandbox:
            assert await sandbox.remote(probes.echo, 1) == 1
            (listed,) = await provider.list()
            assert (listed.sandbox_id, listed.status) == (sandbox_id, "running")
    await provider.delete(sandbox_id)
    assert await provider.list() == []


async def test_an_image_with_a_store_of_its_own_is_refused(
    tap: Tap, far: FarEngine, config: SandboxConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentix.provider.docker.stores.known", lambda _: True)
    with pytest.raises(ImageError, match=r"has a /nix of its own.*use an engine on this one"):
        await DockerProvider().create(config)


async def test_what_is_not_protected_is_warned_of(
    far: FarEngine, config: SandboxConfig, caplog: pytest.LogCaptureFixture
) -> None:
    near = far.address.rpartition(".")[0] + f".{int(far.address.rpartition('.')[2]) - 1}"
    with far.plain(near) as tap, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", tap.url)
        assert await DockerProvider().list() == []
        await first_result(config)
    assert caplog.text.count("without TLS") == 1


async def test_why_there_is_no_way_is_said_on_one_line(
    far: FarEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: SandboxConfig
) -> None:
    tls = far.tls
    shutil.copytree(tls["DOCKER_CERT_PATH"], tmp_path / "stranger")
    shutil.copy(tmp_path / "stranger/cert.pem", tmp_path / "stranger/ca.pem")
    nobody = tmp_path / "nobody"
    nobody.mkdir()
    shutil.copy(f"{tls['DOCKER_CERT_PATH']}/ca.pem", nobody)
    for environment, message in (
        (tls | {"DOCKER_HOST": f"tcp://{far.address}:1"}, r"cannot reach .*refused"),
        (tls | {"DOCKER_HOST": "tcp://nowhere.invalid:1"}, "cannot reach"),
        (tls | {"DOCKER_TLS_VERIFY": ""}, "HTTP request to an HTTPS server"),
        (tls | {"DOCKER_CERT_PATH": str(tmp_path / "stranger")}, "not to be trusted: .*ca.pem"),
        (tls | {"DOCKER_CERT_PATH": str(nobody)}, "certificate"),
        (tls | {"DOCKER_HOST": "npipe:////./pipe/docker"}, "may begin with unix://"),
    ):
        await fails(environment, message, config, monkeypatch)


async def test_why_ssh_leads_nowhere_is_said_on_one_line(
    far: FarEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: SandboxConfig
) -> None:
    if reason := far_engine.missing_ssh():
        pytest.skip(reason)
    ssh, known = far.ssh, far.folder / "known_hosts"
    away = known.rename(tmp_path / "known_hosts")
    await fails(ssh, "Host key verification failed; connect there once", config, monkeypatch)
    shutil.copy(away, known)
    for host, message in (
        (f"nobody@{far.address}:{far_engine.SSH}", "accepted there"),
        (f"root@{far.address}:1", "refused"),
    ):
        await fails(ssh | {"DOCKER_HOST": f"ssh://{host}"}, message, config, monkeypatch)
    # Such a machine has ssh, and no docker.
    bare = tmp_path / "ssh"
    bare.write_text('#!/bin/sh\neval last=\\${$#}\nPATH= exec /bin/sh -c "$last"\n')
    bare.chmod(0o755)
    bare_path = ssh | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    await fails(bare_path, "docker command line has to be installed", config, monkeypatch)
    empty = {"PATH": str(tmp_path / "nothing"), "DOCKER_HOST": ssh["DOCKER_HOST"]}
    await fails(empty, "install openssh-client", config, monkeypatch)


async def fails(
    environment: dict[str, str], message: str, config: SandboxConfig, patch: pytest.MonkeyPatch
) -> None:
    with patch.context() as patched:
        use(environment, patched)
        with pytest.raises(ProviderError, match=message) as caught:
            await DockerProvider().create(config)
        assert "\n" not in str(caught.value)


def forget_bundle(far: FarEngine) -> None:
    for name in volumes(far):
        far.client.api.remove_volume(name)


async def first_result(config: SandboxConfig) -> None:
    async with DockerProvider().session(config) as sandbox:
        assert await sandbox.remote(probes.echo, 1) == 1


async def prune() -> None:
    pruned = await DockerProvider().prune(running=True)
    assert not pruned.failed


def children(name: str) -> list[int]:
    """Return the processes of this one that are called *name*."""
    result = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-x", name], capture_output=True, text=True
    )
    return [int(word) for word in result.stdout.split()]


@contextlib.contextmanager
def host(
    config: SandboxConfig, *ids: str, lease: float = 60, say: bool = True
) -> Iterator[tuple[subprocess.Popen[str], SandboxId]]:
    """Start a process that makes a sandbox, or gets it; end it, and what it has forked."""
    command = python(HOST, str(lease), config.image, str(config.bundle), *ids)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, SandboxId(process.stdout.readline().strip() if say else "")
        finally:
            process.kill()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
