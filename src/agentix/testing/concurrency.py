"""Many sandboxes at the same time: each its own, and none in another's way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from agentix.errors import ProviderError, RemoteCallError
from agentix.testing import probes
from agentix.testing.case import scenario
from agentix.testing.census import MARK
from agentix.testing.group import Group

if TYPE_CHECKING:
    from agentix.provider.base import SandboxId
    from agentix.testing.case import Case

_FEW = 6


class Concurrency(Group):
    """Creating, using and deleting at once."""

    @scenario
    async def test_many_at_once_are_all_their_own(self, case: Case) -> None:
        provider, count = case.provider(), case.subject.many
        arrived = asyncio.Barrier(count)

        async def one(number: int) -> tuple[SandboxId, str, str]:
            config = case.config(env={"NUMBER": str(number)})
            async with provider.session(config) as sandbox:
                assert (await sandbox.health()).status == "ok"
                await arrived.wait()  # now all of them are there
                found = await sandbox.remote(probes.environment)
                assert found[MARK] == case.place.mark
                return sandbox.sandbox_id, sandbox.runtime_url, found["NUMBER"]

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(number)) for number in range(count)]
        ids, urls, numbers = zip(*(task.result() for task in tasks), strict=True)
        assert len(set(ids)) == count
        assert len(set(urls)) == count
        assert numbers == tuple(map(str, range(count)))

    @scenario
    async def test_some_that_fail_do_not_disturb_the_others(self, case: Case) -> None:
        provider, failing = case.provider(), case.scripted("exit 1")

        async def good() -> None:
            async with provider.session(case.config()) as sandbox:
                assert await sandbox.remote(probes.echo, 1) == 1

        async def bad() -> None:
            with pytest.raises(ProviderError):
                await provider.create(failing)

        async with asyncio.TaskGroup() as group:
            for number in range(_FEW):
                group.create_task(good() if number % 2 else bad())

    @scenario
    async def test_deleting_one_twice_at_once_is_fine(self, case: Case) -> None:
        provider = case.provider()
        sandbox = await provider.create(case.config())
        await sandbox.aclose()
        await asyncio.gather(*(provider.delete(sandbox.sandbox_id) for _ in range(3)))

    @scenario
    async def test_deleting_one_ends_its_calls_and_no_others(self, case: Case) -> None:
        provider = case.provider()
        async with provider.session(case.config()) as other:
            sandbox = await provider.create(case.config())
            long = asyncio.ensure_future(sandbox.try_remote(probes.nap, 60))
            assert await sandbox.remote(probes.echo, 1) == 1
            await provider.delete(sandbox.sandbox_id)
            result = await asyncio.wait_for(long, 30)
            assert isinstance(getattr(result, "error", None), RemoteCallError)
            with pytest.raises(RemoteCallError):
                await sandbox.remote(probes.echo, 2)
            await sandbox.aclose()
            assert await other.remote(probes.echo, 3) == 3
