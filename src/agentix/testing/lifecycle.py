"""A sandbox is made, found again, and ends when it is told to, and not before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from agentix.errors import ProviderError, RemoteCallError, SandboxNotFound
from agentix.provider.base import Sandbox, SandboxId
from agentix.testing import probes
from agentix.testing.case import scenario
from agentix.testing.elsewhere import elsewhere, left_by_a_killed_process
from agentix.testing.group import Group

if TYPE_CHECKING:
    from agentix.testing.case import Case


async def _end(case: Case, sandbox: Sandbox) -> None:
    await sandbox.aclose()
    await case.provider().delete(sandbox.sandbox_id)


class Lifecycle(Group):
    """Create, get, delete, session."""

    @scenario
    async def test_a_new_sandbox_runs_and_answers(self, case: Case) -> None:
        sandbox = await case.provider().create(case.config())
        try:
            assert sandbox.status == "running"
            assert sandbox.sandbox_id
            assert sandbox.runtime_url.startswith(("http://", "https://", "http+unix://"))
            assert (await sandbox.health()).status == "ok"
            assert await sandbox.remote(probes.echo, [1, "two"]) == [1, "two"]
        finally:
            await _end(case, sandbox)

    @scenario
    async def test_closing_a_handle_leaves_the_sandbox_alive(self, case: Case) -> None:
        first = await case.provider().create(case.config())
        try:
            await first.aclose()
            await first.aclose()
            with pytest.raises(ProviderError):
                await first.remote(probes.echo, 1)
            async with await case.provider().get(first.sandbox_id) as second:
                assert second.sandbox_id == first.sandbox_id
                assert await second.remote(probes.echo, 2) == 2
        finally:
            await _end(case, first)

    @scenario
    async def test_it_can_be_got_from_another_process(self, case: Case) -> None:
        async with case.provider().session(case.config()) as sandbox:
            assert await elsewhere(case, "get", sandbox.sandbox_id) == "from elsewhere"
            assert await sandbox.remote(probes.echo, 3) == 3

    @scenario
    async def test_it_can_be_deleted_from_another_process(self, case: Case) -> None:
        sandbox = await case.provider().create(case.config())
        try:
            await elsewhere(case, "delete", sandbox.sandbox_id)
            with pytest.raises(SandboxNotFound):
                await case.provider().get(sandbox.sandbox_id)
        finally:
            await _end(case, sandbox)

    def test_it_outlives_the_loop_that_made_it(self, case: Case) -> None:
        async def use(sandbox_id: SandboxId) -> None:
            async with await case.provider().get(sandbox_id) as sandbox:
                assert await sandbox.remote(probes.echo, 4) == 4

        sandbox = asyncio.run(case.provider().create(case.config()))
        try:
            asyncio.run(use(sandbox.sandbox_id))
        finally:
            case.run(_end(case, sandbox), of_this_process=False)

    @scenario
    async def test_deleting_again_does_nothing(self, case: Case) -> None:
        provider = case.provider()
        sandbox = await provider.create(case.config())
        await sandbox.aclose()
        for deleting in (provider, provider, case.provider()):
            await deleting.delete(sandbox.sandbox_id)
        with pytest.raises(SandboxNotFound):
            await provider.get(sandbox.sandbox_id)

    @pytest.mark.parametrize("sandbox_id", ["never-0123456789ab", "../x", "", "a b\n", "x" * 300])
    def test_what_never_was_is_not_found_and_deleting_it_does_nothing(
        self, case: Case, sandbox_id: str
    ) -> None:
        async def look() -> None:
            await case.provider().delete(SandboxId(sandbox_id))
            with pytest.raises(SandboxNotFound):
                await case.provider().get(SandboxId(sandbox_id))

        case.run(look())

    @scenario
    async def test_a_session_deletes_after_success(self, case: Case) -> None:
        provider = case.provider()
        async with provider.session(case.config()) as sandbox:
            assert await sandbox.remote(probes.echo, 5) == 5
        with pytest.raises(SandboxNotFound):
            await provider.get(sandbox.sandbox_id)

    @scenario
    async def test_a_session_deletes_after_an_error_which_is_raised(self, case: Case) -> None:
        provider, error = case.provider(), KeyError("the task's own")
        with pytest.raises(KeyError) as caught:
            async with provider.session(case.config()) as sandbox:
                raise error
        assert caught.value is error
        with pytest.raises(SandboxNotFound):
            await provider.get(sandbox.sandbox_id)

    @scenario
    async def test_a_session_deletes_when_cancelled_in_a_call(self, case: Case) -> None:
        provider, inside = case.provider(), asyncio.Event()
        found: list[SandboxId] = []

        async def use() -> None:
            async with provider.session(case.config()) as sandbox:
                found.append(sandbox.sandbox_id)
                await sandbox.remote(probes.echo, 6)
                inside.set()
                await sandbox.remote(probes.nap, 60)

        task = asyncio.create_task(use())
        await asyncio.wait(
            {task, asyncio.create_task(inside.wait())}, return_when="FIRST_COMPLETED"
        )
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(SandboxNotFound):
            await provider.get(found[0])

    @scenario
    async def test_the_first_error_is_kept_when_deleting_fails_too(
        self, case: Case, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        provider = case.provider()
        delete = provider.delete

        async def failing(sandbox_id: SandboxId) -> None:
            await delete(sandbox_id)
            raise ProviderError("the second error")

        monkeypatch.setattr(provider, "delete", failing)
        with pytest.raises(KeyError, match="the first error") as caught:
            async with provider.session(case.config()):
                raise KeyError("the first error")
        assert any("the second error" in note for note in caught.value.__notes__)

    @scenario
    async def test_a_deletion_that_fails_after_success_is_an_error(
        self, case: Case, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        provider = case.provider()
        delete = provider.delete

        async def failing(sandbox_id: SandboxId) -> None:
            await delete(sandbox_id)
            raise ProviderError("it could not be removed")

        monkeypatch.setattr(provider, "delete", failing)
        with pytest.raises(ProviderError, match="could not be removed"):
            async with provider.session(case.config()):
                pass

    @scenario
    async def test_a_dead_worker_costs_its_call_and_not_the_sandbox(self, case: Case) -> None:
        async with case.provider().session(case.config()) as sandbox:
            with pytest.raises(RemoteCallError):
                await sandbox.remote(probes.end_worker)
            assert await sandbox.remote(probes.echo, 7) == 7

    @scenario
    async def test_a_sandbox_that_ended_by_itself_is_not_found_and_can_be_deleted(
        self, case: Case
    ) -> None:
        provider = case.provider()
        sandbox = await provider.create(case.config())
        try:
            with pytest.raises(RemoteCallError):
                await sandbox.remote(probes.end_runtime)
            await _gone(provider, sandbox.sandbox_id)
            with pytest.raises(RemoteCallError):
                await sandbox.remote(probes.echo, 8)
        finally:
            await _end(case, sandbox)

    @scenario
    async def test_it_is_listed_for_as_long_as_it_lives(self, case: Case) -> None:
        case.require(case.subject.lists, "lists")
        provider = case.provider()
        async with provider.session(case.config()) as sandbox:
            [listed] = [
                each for each in await provider.list() if each.sandbox_id == sandbox.sandbox_id
            ]
            assert listed.status == "running"
            assert listed.image == case.subject.image
            assert listed.owner is not None
            assert listed.owner.lives()
            assert not listed.abandoned
        assert sandbox.sandbox_id not in [each.sandbox_id for each in await provider.list()]

    @scenario
    async def test_what_a_killed_process_left_is_known_to_be_nobodys(self, case: Case) -> None:
        case.require(case.subject.lists, "lists")
        provider = case.provider()
        sandbox_id = await left_by_a_killed_process(case)
        try:
            [listed] = [each for each in await provider.list() if each.sandbox_id == sandbox_id]
            assert listed.abandoned
            # Others' are none of this test's business, so it only asks.
            pruned = await provider.prune(running=True, dry_run=True)
            assert sandbox_id in [each.sandbox_id for each in pruned.removed]
        finally:
            await provider.delete(sandbox_id)
        assert sandbox_id not in [each.sandbox_id for each in await provider.list()]


async def _gone(provider: Any, sandbox_id: SandboxId) -> None:
    """Return once the provider knows that the sandbox has ended."""
    async with asyncio.timeout(30):
        while True:
            try:
                await (await provider.get(sandbox_id)).aclose()
            except SandboxNotFound:
                return
            await asyncio.sleep(0.02)
