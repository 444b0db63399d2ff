"""What a sandbox may use: each limit holds, or the sandbox is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentix.errors import ProviderError, RemoteCallError, WorkerExited
from agentix.provider.base import SandboxResource
from agentix.testing import probes
from agentix.testing.case import refused, scenario
from agentix.testing.group import Group

if TYPE_CHECKING:
    from agentix.testing.case import Case
    from agentix.testing.subject import Limit

_MEMORY = 256 << 20
_CORES = 0.5
_PROCESSES = 64
_LIMITS: dict[Limit, SandboxResource] = {
    "cpu": SandboxResource(cpu=_CORES),
    "memory": SandboxResource(memory=_MEMORY),
    "gpu": SandboxResource(gpu=1),
}


class Resources(Group):
    """CPU, memory, processes; and that nothing asked for is left out in silence."""

    @pytest.mark.parametrize("limit", sorted(_LIMITS))
    def test_a_limit_that_is_not_enforced_is_refused(self, case: Case, limit: Limit) -> None:
        if limit in case.subject.limits:
            pytest.skip(f"{limit} is declared to be enforced")

        config = case.config(resource=_LIMITS[limit])
        said = case.run(refused(case.provider(), config, ProviderError))
        assert limit in said

    @scenario
    async def test_too_much_memory_ends_the_call_and_says_why(self, case: Case) -> None:
        case.require("memory" in case.subject.limits, "limits memory")
        config = case.config(resource=_LIMITS["memory"])
        async with case.provider().session(config) as sandbox:
            assert await sandbox.remote(probes.take_memory, _MEMORY // 4) == _MEMORY // 4
            with pytest.raises(WorkerExited, match=r"(?i)memory"):
                await sandbox.remote(probes.take_memory, 4 * _MEMORY)
            try:
                assert await sandbox.remote(probes.echo, 1) == 1
            except RemoteCallError as error:
                pytest.fail(f"the sandbox ended with its worker: {error}")

    @scenario
    async def test_cores_are_as_many_as_asked_for(self, case: Case) -> None:
        case.require("cpu" in case.subject.limits, "limits cpu")
        async with case.provider().session(case.config(resource=_LIMITS["cpu"])) as sandbox:
            used = await sandbox.remote(probes.burn, 1.5, 2)
        assert used < _CORES * 1.3

    @scenario
    async def test_processes_are_as_many_as_allowed(self, case: Case) -> None:
        provider = case.subject.limited_processes
        case.require(provider, "limited_processes")
        assert provider is not None
        async with provider(_PROCESSES).session(case.config()) as sandbox:
            started = await sandbox.remote(probes.start_processes, 4 * _PROCESSES)
            assert started < _PROCESSES
            assert await sandbox.remote(probes.echo, 1) == 1
