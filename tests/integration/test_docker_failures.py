"""When a container cannot become a sandbox: one clear line, soon, and nothing left behind."""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
import socket
import subprocess
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest
from images import image
from images.bundles import bundle_that_runs
from images.engine import Leftovers, loaded

from agentix.errors import ImageError, ProviderError
from agentix.provider.base import SandboxConfig
from agentix.provider.docker import DockerProviderConfig, PodmanProvider, images
from agentix.provider.docker.address import Address
from agentix.provider.docker.engine import TIMEOUT, Engine
from agentix.provider.docker.problems import why_no_connection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engines import EngineUnderTest
    from images import TaskImage

    from agentix.provider.base import SandboxId


def test_a_runtime_that_dies_is_reported_at_once_with_its_last_words(
    engine: EngineUnderTest, leftovers: Leftovers, busybox: str, tmp_path: Path
) -> None:
    bundle = bundle_that_runs("echo first; echo 'it is the flux' >&2; exit 3", tmp_path)
    begun = time.monotonic()
    with pytest.raises(ProviderError) as caught:
        asyncio.run(engine.provider().create(SandboxConfig(image=busybox, bundle=str(bundle))))
    assert time.monotonic() - begun < 10
    assert "exit code 3" in str(caught.value)
    assert "it is the flux" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_runtime_that_never_answers_is_given_up(
    engine: EngineUnderTest, leftovers: Leftovers, busybox: str, tmp_path: Path
) -> None:
    bundle = bundle_that_runs("trap '' TERM; echo waiting for ever; sleep 1000", tmp_path)
    choices = engine.provider(start_timeout=2)
    begun = time.monotonic()
    with pytest.raises(ProviderError, match=r"within 2 s.*waiting for ever"):
        asyncio.run(choices.create(SandboxConfig(image=busybox, bundle=str(bundle))))
    assert time.monotonic() - begun < 15


@pytest.mark.slow
def test_a_cancelled_create_leaves_nothing_whatever_the_moment(
    engine: EngineUnderTest, leftovers: Leftovers, busybox: str, tmp_path: Path
) -> None:
    bundle = bundle_that_runs("sleep 1000", tmp_path)
    config = SandboxConfig(image=busybox, bundle=str(bundle))

    async def cancel_after(delay: float) -> None:
        task = asyncio.create_task(engine.provider().create(config))
        await asyncio.wait({task}, timeout=delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert leftovers.containers() == []

    async def rounds() -> None:
        # Of Podman, the conformance suite asks the same.
        for number in range(20) if engine.kind == "docker" else range(0, 20, 5):
            await cancel_after(number * 0.04)

    asyncio.run(rounds())


@pytest.mark.parametrize("step", ["connect", "image", "create", "kind", "start", "state"])
def test_a_cancellation_while_the_engine_works_leaves_nothing(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    busybox: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    bundle = bundle_that_runs("sleep 1000", tmp_path)
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))  # which knows the image

    async def cancel_at_the_step() -> None:
        config = SandboxConfig(image=busybox, bundle=str(bundle))
        await cancel_at(step, asyncio.create_task(engine.provider().create(config)), monkeypatch)

    asyncio.run(cancel_at_the_step())


def test_a_create_that_is_cancelled_again_while_it_cleans_up_still_cleans_up(
    engine: EngineUnderTest, leftovers: Leftovers, busybox: str, tmp_path: Path
) -> None:
    bundle = bundle_that_runs("sleep 1000", tmp_path)

    async def insist() -> None:
        config = SandboxConfig(image=busybox, bundle=str(bundle))
        task = asyncio.create_task(engine.provider().create(config))
        await leftovers.appear()
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=0.01)
        assert task.cancelled()

    asyncio.run(insist())


def test_a_sandbox_that_cannot_be_stopped_is_removed_all_the_same(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    busybox: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ProviderError("the engine did not answer")

    monkeypatch.setattr(Engine, "stop", refuse)

    async def create_and_delete() -> None:
        sandbox_id = await started(engine, busybox, tmp_path, monkeypatch)
        await engine.provider().delete(sandbox_id)

    asyncio.run(create_and_delete())


def test_a_sandbox_that_could_not_be_removed_can_be_deleted_again(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    busybox: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise ProviderError("the disk is busy")

    async def delete_twice() -> None:
        sandbox_id = await started(engine, busybox, tmp_path, monkeypatch)
        with monkeypatch.context() as broken:
            broken.setattr(Engine, "remove", refuse)
            with pytest.raises(ProviderError, match="the disk is busy"):
                await engine.provider().delete(sandbox_id)
        assert leftovers.folders() == [sandbox_id]  # it says which engine has the container
        await engine.provider().delete(sandbox_id)

    asyncio.run(delete_twice())


@pytest.mark.parametrize("step", ["connect", "stop", "remove"])
def test_a_cancelled_delete_still_removes_everything(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    busybox: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    async def cancel_at_the_step() -> None:
        sandbox_id = await started(engine, busybox, tmp_path, monkeypatch)
        task = asyncio.create_task(engine.provider(stop_timeout=0).delete(sandbox_id))
        await cancel_at(step, task, monkeypatch)

    asyncio.run(cancel_at_the_step())


def test_a_delete_may_take_as_long_as_its_requests() -> None:
    slow = DockerProviderConfig(stop_timeout=1000).to_provider()
    assert slow.delete_bound > 1000 + 3 * TIMEOUT


async def started(
    engine: EngineUnderTest, busybox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SandboxId:
    """Return a sandbox whose container runs, and is taken for one that answers."""

    async def ready(*_: object, **__: object) -> None:
        return None

    bundle = bundle_that_runs("sleep 1000", tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("agentix.provider.docker.provider.until_ready", ready)
        config = SandboxConfig(image=busybox, bundle=str(bundle))
        sandbox = await engine.provider(lease=None).create(config)  # nothing in it can be held
    return sandbox.sandbox_id


async def cancel_at(step: str, task: asyncio.Task[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancel *task* while the engine is about to do *step*, which goes on only after that."""
    real, reached, cancelled = getattr(Engine, step), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def busy(*arguments: object, **options: object) -> object:
        loop.call_soon_threadsafe(reached.set)
        assert cancelled.wait(20)
        return real(*arguments, **options)

    monkeypatch.setattr(Engine, step, busy)
    async with asyncio.timeout(20):
        await reached.wait()
    task.cancel()
    for _ in range(10):  # for as long as it takes until whoever awaits the engine knows
        await asyncio.sleep(0)
    cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_image_that_nobody_has_fails_fast(
    engine: EngineUnderTest, leftovers: Leftovers, tmp_path: Path
) -> None:
    bundle = str(bundle_that_runs("exit 1", tmp_path))
    name = "127.0.0.1:9/agentix-test/never:1"
    for pull, reason in (("missing", "cannot be pulled"), ("never", "pulling is switched off")):
        begun = time.monotonic()
        with pytest.raises(
            ImageError, match=f"'{re.escape(name)}' is not on this machine.*{reason}"
        ):
            asyncio.run(engine.provider(pull=pull).create(SandboxConfig(image=name, bundle=bundle)))
        assert time.monotonic() - begun < 5


def test_what_is_no_image_name_is_said_to_be_none(
    engine: EngineUnderTest, leftovers: Leftovers, tmp_path: Path
) -> None:
    bundle = str(bundle_that_runs("exit 1", tmp_path))
    with pytest.raises(ImageError, match="'No Such Name' is not the name of an image"):
        asyncio.run(engine.provider().create(SandboxConfig(image="No Such Name", bundle=bundle)))
    with pytest.raises(ImageError, match="an id cannot be pulled"):
        asyncio.run(
            engine.provider().create(SandboxConfig(image="sha256:" + "0" * 64, bundle=bundle))
        )
    kind = engine.kind
    with pytest.raises(ImageError, match=rf"tar -C {tmp_path} -c \. \| {kind} import - NAME"):
        asyncio.run(engine.provider().create(SandboxConfig(image=str(tmp_path), bundle=bundle)))


def test_the_advice_for_a_folder_makes_an_image_of_it(
    engine: EngineUnderTest, task_image: Callable[[str], TaskImage]
) -> None:
    if shutil.which(engine.kind) is None:
        pytest.skip(f"the advice is for {engine.kind}'s command line, which is not installed here")
    rootfs = task_image("busybox").rootfs
    name = f"agentix-test/imported:{secrets.token_hex(4)}"
    error = images.cannot_be_pulled(engine.kind, str(rootfs))
    command = re.search(r"tar -C .* NAME", str(error))
    assert command
    script = command[0].replace("NAME", name)
    try:
        subprocess.run(["sh", "-c", script], check=True, capture_output=True, timeout=60)
        [tag] = engine.client.images.get(name).tags
        assert tag.removeprefix("localhost/") == name
    finally:
        engine.client.images.remove(name, force=True)


@pytest.mark.parametrize(
    ("kind", "variable"), [("docker", "DOCKER_HOST"), ("podman", "CONTAINER_HOST")]
)
def test_no_engine_is_one_line_that_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Literal["docker", "podman"],
    variable: str,
) -> None:
    config = SandboxConfig(image="any", bundle=str(bundle_that_runs("exit 1", tmp_path)))
    provider = DockerProviderConfig(container_engine=kind).to_provider()
    stale = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(stale))
    name = kind.title()
    for host, reason in (
        (
            "unix:///nonexistent/e.sock",
            f"no {name} engine at unix:///nonexistent/e.sock: .*{variable}",
        ),
        (f"unix://{stale}", f"{name} engine at .* is down .*Connection refused.*; start {name}"),
    ):
        monkeypatch.setenv(variable, host)
        with pytest.raises(ProviderError, match=reason) as caught:
            asyncio.run(provider.create(config))
        assert "\n" not in str(caught.value)


def test_a_podman_of_another_machine_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTAINER_HOST", "tcp://192.0.2.1:2375")
    config = SandboxConfig(image="any", bundle=str(bundle_that_runs("exit 1", tmp_path)))
    with pytest.raises(ProviderError, match=r"Podman engine at tcp://.* set CONTAINER_HOST to"):
        asyncio.run(PodmanProvider().create(config))


def test_an_engine_that_may_not_be_used_names_the_socket_and_the_remedy() -> None:
    denied = PermissionError(13, "denied")
    message = why_no_connection(Address("docker", "unix:///run/x.sock"), denied)
    assert "no permission to use the Docker engine" in message
    assert "/run/x.sock" in message
    assert "group docker" in message
    assert "docker" not in why_no_connection(Address("podman", "unix:///run/x.sock"), denied)


def test_an_image_with_a_nix_that_is_no_folder_is_refused(
    leftovers: Leftovers, engine: EngineUnderTest, tmp_path: Path
) -> None:
    (tmp_path / "rootfs").mkdir()
    (tmp_path / "rootfs/nix").touch()
    bundle = str(bundle_that_runs("exit 1", tmp_path))
    with (
        loaded(engine.client, replace(image("busybox"), rootfs=tmp_path / "rootfs")) as tag,
        pytest.raises(ImageError, match="has a /nix that is no folder"),
    ):
        asyncio.run(engine.provider().create(SandboxConfig(image=tag, bundle=bundle)))
