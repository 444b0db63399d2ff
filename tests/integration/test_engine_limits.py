"""What a container may use: each limit holds in the kernel, or the sandbox is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from images.bundles import bundle_that_runs

from agentix import Failed, SandboxConfig, SandboxResource, WorkerExited
from agentix.errors import ProviderError
from agentix.testing import probes

if TYPE_CHECKING:
    from pathlib import Path

    from engines import EngineUnderTest
    from images.engine import Leftovers

    from agentix.bundle import CachedBundle

QUOTA = """
cd /sys/fs/cgroup
if [ -e cpu.max ]; then cat cpu.max; else cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us; fi
"""


def config(bundle: CachedBundle, image: str, **resource: Any) -> SandboxConfig:
    wanted = SandboxResource(**resource)
    return SandboxConfig(image=image, bundle=str(bundle.path), resource=wanted)


@pytest.fixture
def limiting(engine: EngineUnderTest) -> EngineUnderTest:
    if not engine.limits:
        pytest.skip(f"{engine.kind} cannot limit anything here: an ordinary user's, on cgroup v1")
    return engine


@pytest.mark.nix
def test_who_takes_too_much_memory_dies_of_it_and_the_sandbox_lives(
    limiting: EngineUnderTest, leftovers: Leftovers, numpy_bundle: CachedBundle, busybox: str
) -> None:
    from numpy_task import crowd, hog, run, solve

    async def exhaust() -> None:
        small = config(numpy_bundle, busybox, memory="192m")
        async with limiting.provider().session(small) as sandbox:
            first = (await sandbox.health()).worker_pid
            waiting = asyncio.create_task(sandbox.try_remote(run, ["/bin/sleep", "50"]))
            with pytest.raises(WorkerExited, match=r"out of memory, .* limit is 192 MiB") as caught:
                await sandbox.remote(hog)
            assert (caught.value.returncode, caught.value.signal) == (-9, "SIGKILL")
            assert isinstance(getattr(await waiting, "error", None), WorkerExited)
            assert len(await sandbox.remote(solve, 8)) == 8
            second = (await sandbox.health()).worker_pid
            assert second != first
            scores = ["/bin/cat", "/proc/1/oom_score_adj", "/proc/self/oom_score_adj"]
            server, program = (await sandbox.remote(run, scores)).stdout.split()
            assert int(server) < int(program)
            # Each of them is smaller than the server, which must outlive them all the same.
            await sandbox.try_remote(crowd, 60, 4 << 20)
            assert (await sandbox.health()).status == "ok"
            async with asyncio.timeout(30):  # the crowd outlives its worker for a second
                while isinstance(await sandbox.try_remote(solve, 8), Failed):
                    pass
            assert limiting.inspect(sandbox.sandbox_id)["State"]["Running"]

    asyncio.run(exhaust())


@pytest.mark.nix
def test_cores_and_processes_are_as_many_as_asked_for(
    limiting: EngineUnderTest, leftovers: Leftovers, numpy_bundle: CachedBundle, busybox: str
) -> None:
    async def measure() -> tuple[float, str, int]:
        provider = limiting.provider(pids_limit=40)
        async with provider.session(config(numpy_bundle, busybox, cpu=0.5)) as sandbox:
            used = await sandbox.remote(probes.burn, 2.0, 2)
            _, quota, _ = await sandbox.remote(probes.run, ["/bin/sh", "-c", QUOTA])
            started = await sandbox.remote(probes.start_processes, 100)
            assert await sandbox.remote(probes.echo, 1) == 1
            return used, quota, started

    used, quota, started = asyncio.run(measure())
    # On a busy machine others may be why it was little, so the kernel is asked as well.
    assert used < 0.65
    assert quota.split() == ["50000", "100000"]
    assert 10 < started < 40


def test_no_limit_on_processes_is_a_choice(
    engine: EngineUnderTest, leftovers: Leftovers, tmp_path: Path, busybox: str
) -> None:
    bundle = bundle_that_runs("cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max", tmp_path)
    unbounded = SandboxConfig(image=busybox, bundle=str(bundle))
    with pytest.raises(ProviderError, match=r"ends with:.*\bmax\b"):
        asyncio.run(engine.provider(pids_limit=None).create(unbounded))


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        ({"gpu": 99}, "99 GPUs were asked for, and {} (has no driver|gives none)"),
        ({"cpu": 10_000}, "CPUs"),
    ],
)
def test_what_the_machine_does_not_have_is_refused(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    busybox: str,
    tmp_path: Path,
    resource: dict[str, int],
    reason: str,
) -> None:
    if "cpu" in resource and not engine.limits:
        reason = "cannot limit cpu"
    bundle = str(bundle_that_runs("exit 1", tmp_path))
    wanted = {"image": busybox, "bundle": bundle, "resource": resource}
    with pytest.raises(ProviderError, match=reason.format(engine.kind)) as caught:
        asyncio.run(engine.provider().create(SandboxConfig.model_validate(wanted)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["cpu", "memory", "pids"])
def test_what_an_engine_cannot_limit_is_refused_rather_than_ignored(
    engine: EngineUnderTest, leftovers: Leftovers, busybox: str, tmp_path: Path, name: str
) -> None:
    if engine.limits:
        pytest.skip(f"{engine.kind} can limit everything here")
    bundle = str(bundle_that_runs("exit 1", tmp_path))
    wanted: dict[str, Any] = {"image": busybox, "bundle": bundle}
    choices: dict[str, Any] = {}
    match name:
        case "cpu":
            wanted["resource"] = {"cpu": 1}
        case "memory":
            wanted["resource"] = {"memory": "1g"}
        case _:
            choices["pids_limit"] = 100
    with pytest.raises(
        ProviderError, match=f"{engine.kind} cannot limit {name} here: .* cgroup v1"
    ):
        asyncio.run(engine.provider(**choices).create(SandboxConfig.model_validate(wanted)))
