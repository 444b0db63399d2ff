"""Sandboxes as containers: what they may do, how they are found again, and that they go away."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from images import ImageConfig
from images.engine import loaded

from agentix import SandboxConfig
from agentix.errors import ProviderError, RemoteCallError, SandboxNotFound
from agentix.provider.base import SandboxId, SandboxProvider
from agentix.provider.docker import container
from agentix.testing import probes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engines import EngineUnderTest
    from images import TaskImage
    from images.engine import Leftovers

    from agentix.bundle import CachedBundle

pytestmark = pytest.mark.nix


@pytest.fixture
def config(numpy_bundle: CachedBundle, busybox: str) -> SandboxConfig:
    return SandboxConfig(image=busybox, bundle=str(numpy_bundle.path))


def test_a_session_on_an_image_of_one_program_answers(
    engine: EngineUnderTest, leftovers: Leftovers, config: SandboxConfig
) -> None:
    from numpy_task import solve

    async def call() -> Any:
        async with engine.provider().session(config) as sandbox:
            return await sandbox.remote(solve, 8)

    assert np.allclose(asyncio.run(call()), np.ones(8))


@pytest.mark.parametrize("letters", ["a:ro =\\ ünïcode", ',"', "\r\n"])
def test_a_bundle_may_lie_in_a_folder_of_any_name_that_an_engine_can_be_told(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    config: SandboxConfig,
    numpy_bundle: CachedBundle,
    tmp_path: Path,
    letters: str,
) -> None:
    from numpy_task import run

    place = tmp_path / letters / numpy_bundle.path.name
    place.parent.mkdir()
    linked = subprocess.run(["cp", "-al", numpy_bundle.path, place], capture_output=True)
    if linked.returncode:  # another file system
        subprocess.run(["cp", "-a", numpy_bundle.path, place], check=True)

    async def call() -> Any:
        odd = config.model_copy(update={"bundle": str(place)})
        async with engine.provider().session(odd) as sandbox:
            return (await sandbox.remote(run, ["/bin/busybox", "echo", "in it"])).stdout

    if engine.kind == "podman" and not letters[0].isalnum():
        with pytest.raises(
            ProviderError, match="a comma, a quotation mark or a line break"
        ) as told:
            asyncio.run(call())
        assert str(told.value).isprintable()
    else:
        assert asyncio.run(call()) == "in it\n"


def test_a_session_is_over_when_its_block_is_left_by_an_error(
    engine: EngineUnderTest, leftovers: Leftovers, config: SandboxConfig
) -> None:
    async def fail() -> None:
        async with engine.provider().session(config):
            assert len(leftovers.containers()) == 1
            raise KeyError("the task failed")

    with pytest.raises(KeyError, match="the task failed"):
        asyncio.run(fail())


def test_a_session_is_over_when_its_task_is_cancelled(
    engine: EngineUnderTest, leftovers: Leftovers, config: SandboxConfig
) -> None:
    from numpy_task import run

    async def work(started: asyncio.Event) -> None:
        async with engine.provider().session(config) as sandbox:
            started.set()
            await sandbox.remote(run, ["/bin/sleep", "1000"])

    async def cancel() -> None:
        started = asyncio.Event()
        task = asyncio.create_task(work(started))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())


def test_a_sandbox_is_found_again_also_from_another_process(
    engine: EngineUnderTest, leftovers: Leftovers, config: SandboxConfig
) -> None:
    program = """
import asyncio, sys
from agentix.provider import providers
async def ask():
    async with await providers().get(sys.argv[2])().get(sys.argv[1]) as sandbox:
        return (await sandbox.health()).status
print(asyncio.run(ask()))
"""

    async def again() -> str:
        async with engine.provider().session(config) as sandbox:
            command = [sys.executable, "-c", program, sandbox.sandbox_id, engine.kind]
            other = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            output, _ = await other.communicate()
            return output.decode().strip()

    assert asyncio.run(again()) == "ok"


def test_deleting_twice_is_fine_and_what_is_gone_is_not_found(
    engine: EngineUnderTest, leftovers: Leftovers, config: SandboxConfig
) -> None:
    async def delete() -> None:
        provider = engine.provider()
        sandbox = await provider.create(config)
        await sandbox.aclose()
        await provider.delete(sandbox.sandbox_id)
        await provider.delete(sandbox.sandbox_id)
        with pytest.raises(SandboxNotFound):
            await provider.get(sandbox.sandbox_id)

    asyncio.run(delete())


def test_a_container_that_was_killed_is_not_found_and_can_be_deleted(
    leftovers: Leftovers, engine: EngineUnderTest, config: SandboxConfig
) -> None:
    from numpy_task import process

    async def kill() -> None:
        provider = engine.provider()
        sandbox = await provider.create(config)
        engine.client.api.kill(f"agentix-{sandbox.sandbox_id}")
        with pytest.raises(SandboxNotFound, match="has ended"):
            await provider.get(sandbox.sandbox_id)
        with pytest.raises(RemoteCallError):
            await sandbox.remote(process)
        await sandbox.aclose()
        await provider.delete(sandbox.sandbox_id)

    asyncio.run(kill())


@pytest.mark.parametrize("sandbox_id", ["KIND-0123456789ab", "other-1", "../docker", ""])
def test_deleting_what_never_was_does_nothing(
    engine: EngineUnderTest, leftovers: Leftovers, sandbox_id: str
) -> None:
    never = SandboxId(sandbox_id.replace("KIND", engine.kind))
    asyncio.run(engine.provider().delete(never))
    with pytest.raises(SandboxNotFound):
        asyncio.run(engine.provider().get(never))


@pytest.mark.parametrize(
    "run",
    [
        ImageConfig(entrypoint=("/bin/false",)),
        ImageConfig(entrypoint=("/bin/echo",), command=("swallowed",)),
        ImageConfig(entrypoint=("/bin/sh", "-c", "exit 0")),
        ImageConfig(healthcheck=("CMD-SHELL", "exit 1")),
        ImageConfig(volumes=("/data",), workdir="/data/deep"),
    ],
    ids=["false", "echo", "shell", "healthcheck", "volume"],
)
def test_what_the_image_would_run_has_no_say(
    leftovers: Leftovers,
    engine: EngineUnderTest,
    numpy_bundle: CachedBundle,
    task_image: Callable[[str], TaskImage],
    run: ImageConfig,
) -> None:
    from numpy_task import process

    async def visit(tag: str) -> None:
        config = SandboxConfig(image=tag, bundle=str(numpy_bundle.path))
        async with engine.provider().session(config) as sandbox:
            assert (await sandbox.remote(process)).folder == (run.workdir or "/")
            attributes = engine.inspect(sandbox.sandbox_id)
            assert attributes["State"].get("Health", {}).get("Status", "") == ""
            volumes.update(m["Name"] for m in attributes["Mounts"] if m["Type"] == "volume")

    volumes: set[str] = set()
    with loaded(engine.client, replace(task_image("busybox"), config=run)) as tag:
        asyncio.run(visit(tag))
    assert len(volumes) == len(run.volumes)
    assert volumes.isdisjoint(volume.name for volume in engine.client.volumes.list())


def used(engine: EngineUnderTest) -> dict[str, set[str]]:
    """Return what ``docker system df`` counts: everything that takes room in the engine."""
    report = engine.client.df()
    return {
        "images": {each["Id"] for each in report["Images"] or ()},
        "containers": {each["Id"] for each in report["Containers"] or ()},
        "volumes": {each["Name"] for each in report["Volumes"] or ()},
        "build cache": {each["ID"] for each in report.get("BuildCache") or ()},
    }


def test_sessions_take_no_room_in_the_engine_for_good(
    leftovers: Leftovers,
    engine: EngineUnderTest,
    numpy_bundle: CachedBundle,
    task_image: Callable[[str], TaskImage],
) -> None:
    from numpy_task import run

    async def visit(tag: str) -> dict[str, set[str]]:
        config = SandboxConfig(image=tag, bundle=str(numpy_bundle.path))
        async with engine.provider().session(config) as sandbox:
            assert (await sandbox.remote(run, ["/bin/touch", "/data/x", "/tmp/x"])).code == 0
            return used(engine)

    image = replace(task_image("busybox"), config=ImageConfig(volumes=("/data",)))
    with loaded(engine.client, image) as tag:
        for _ in range(
            3
        ):  # others may use the engine meanwhile; what a session leaves is always there
            before = used(engine)
            during = [asyncio.run(visit(tag)) for _ in range(3)]
            if (after := used(engine)) == before:
                break
        assert after == before
        assert all(seen["volumes"] - before["volumes"] for seen in during)
        assert all(seen["containers"] - before["containers"] for seen in during)


def test_whoever_the_image_runs_as_reads_the_bundle_and_is_reached(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    numpy_bundle: CachedBundle,
    task_image: Callable[[str], TaskImage],
) -> None:
    from numpy_task import process, solve

    async def visit(tag: str) -> None:
        config = SandboxConfig(image=tag, bundle=str(numpy_bundle.path))
        async with engine.provider().session(config) as sandbox:
            assert (await sandbox.remote(process)).user == 12345
            assert np.allclose(await sandbox.remote(solve, 8), np.ones(8))
            await sandbox.remote(probes.litter, "/nix/run", 3)

    image = replace(task_image("busybox"), config=ImageConfig(user="12345:7"))
    with loaded(engine.client, image) as tag:
        asyncio.run(visit(tag))


def test_a_sandbox_is_unprivileged_unless_told_otherwise(
    leftovers: Leftovers, engine: EngineUnderTest, config: SandboxConfig
) -> None:
    from numpy_task import restrictions

    async def look(provider: SandboxProvider) -> tuple[dict[str, str], dict[str, Any]]:
        async with provider.session(config) as sandbox:
            return await sandbox.remote(restrictions), engine.inspect(sandbox.sandbox_id)

    inside, attributes = asyncio.run(look(engine.provider()))
    capabilities = int(inside["CapBnd"], 16)
    for dropped in (13, 16, 18, 19, 21, 27):  # net_raw, module, chroot, ptrace, admin, mknod
        assert not capabilities & 1 << dropped
    assert inside["NoNewPrivs"].strip() == "1"
    host = attributes["HostConfig"]
    assert engine.rootless or host["PidsLimit"] == 4096
    assert host["NetworkMode"] != "host"
    assert not host["Privileged"]
    assert sorted((m["Destination"], m["RW"]) for m in attributes["Mounts"]) == [
        ("/nix", False),
        ("/nix/run", True),
    ]

    none = engine.provider(capabilities=(), no_new_privileges=False)
    inside, attributes = asyncio.run(look(none))
    assert int(inside["CapBnd"], 16) == 0
    # What the engine may not gain itself, no container of its may.
    assert inside["NoNewPrivs"].strip() == str(int(engine.gains_nothing))


def test_a_tmp_that_runs_nothing_and_no_shared_memory_disturb_nobody(
    leftovers: Leftovers,
    engine: EngineUnderTest,
    config: SandboxConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from numpy_task import run

    sealed = {"read_only": True, "tmpfs": {"/tmp": "noexec,mode=0555"}, "ipc_mode": "none"}
    made = container.host_settings
    monkeypatch.setattr(container, "host_settings", lambda *given: made(*given) | sealed)
    large = bytes(3 << 20)

    async def visit() -> str:
        async with engine.provider().session(config) as sandbox:
            assert await sandbox.remote(probes.echo, large) == large
            return (await sandbox.remote(run, ["cat", "/proc/self/mounts"])).stdout

    places = dict(line.split()[1:4:2] for line in asyncio.run(visit()).splitlines())
    assert "noexec" in places["/tmp"].split(",")
    assert "/dev/shm" not in places


def test_a_container_says_whose_it_is(
    leftovers: Leftovers, engine: EngineUnderTest, config: SandboxConfig
) -> None:
    async def labels() -> tuple[str, dict[str, str]]:
        async with engine.provider().session(config) as sandbox:
            attributes = engine.inspect(sandbox.sandbox_id)
            return sandbox.sandbox_id, attributes["Config"]["Labels"]

    sandbox_id, found = asyncio.run(labels())
    assert found["agentix.sandbox"] == sandbox_id
    assert found["agentix.owner"]
    assert found["agentix.started"].endswith("+00:00")


def test_the_secret_is_nowhere_in_what_the_engine_shows(
    leftovers: Leftovers, engine: EngineUnderTest, config: SandboxConfig
) -> None:
    async def look() -> tuple[str, str]:
        async with engine.provider().session(config) as sandbox:
            shown = json.dumps(engine.inspect(sandbox.sandbox_id))
            return sandbox._token or "", shown

    token, shown = asyncio.run(look())
    assert len(token) >= 32
    assert token not in shown


def test_a_runtime_that_does_not_react_is_removed_all_the_same(
    leftovers: Leftovers, engine: EngineUnderTest, config: SandboxConfig
) -> None:
    async def stop() -> float:
        provider = engine.provider(stop_timeout=1)
        sandbox = await provider.create(config)
        await sandbox.aclose()
        engine.client.api.kill(f"agentix-{sandbox.sandbox_id}", "SIGSTOP")
        begun = time.monotonic()
        await provider.delete(sandbox.sandbox_id)
        return time.monotonic() - begun

    assert asyncio.run(stop()) < 15


def test_output_without_end_neither_blocks_the_runtime_nor_fills_the_disk(
    leftovers: Leftovers, engine: EngineUnderTest, config: SandboxConfig
) -> None:
    from numpy_task import chatter

    async def talk() -> int:
        async with engine.provider().session(config) as sandbox:
            assert await sandbox.remote(chatter, 50_000) == 50_000
            return len(engine.client.api.logs(f"agentix-{sandbox.sandbox_id}"))

    assert asyncio.run(talk()) < 3 * 2**20


def test_many_at_once_are_all_their_own(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    config: SandboxConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from numpy_task import process

    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def one() -> str:
        async with engine.provider().session(config) as sandbox:
            await sandbox.remote(process)
            return sandbox.runtime_url

    count = 12 if engine.kind == "docker" else 4  # Podman starts one after the other

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(one() for _ in range(count)))

    assert len(set(asyncio.run(all_of_them()))) == count


def test_a_create_that_is_cancelled_just_before_it_would_return_leaves_nothing(
    engine: EngineUnderTest, leftovers: Leftovers, config: SandboxConfig
) -> None:
    async def rounds() -> None:
        for number in range(12) if engine.kind == "docker" else range(0, 12, 3):
            task = asyncio.create_task(engine.provider().create(config))
            await leftovers.appear()
            await asyncio.wait({task}, timeout=0.05 * number)
            task.cancel()
            try:
                sandbox = await task
            except asyncio.CancelledError:
                pass
            else:  # it was ready first, and then it is the caller's
                await sandbox.aclose()
                await engine.provider().delete(sandbox.sandbox_id)
            leftovers.check()

    asyncio.run(rounds())
