"""What was there before is there after, however a task behaves."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agentix.errors import RemoteCallError
from agentix.testing import probes
from agentix.testing.case import scenario
from agentix.testing.group import Group

if TYPE_CHECKING:
    import pytest

    from agentix.testing.case import Case


class Cleanup(Group):
    """Processes, files and output of tasks that leave things lying about."""

    @scenario
    async def test_sessions_one_after_the_other_add_up_to_nothing(self, case: Case) -> None:
        provider = case.provider()
        for _ in range(3):
            async with provider.session(case.config()) as sandbox:
                assert await sandbox.remote(probes.echo, 1) == 1

    @scenario
    async def test_processes_that_a_task_left_end_with_the_sandbox(self, case: Case) -> None:
        async with case.provider().session(case.config()) as sandbox:
            assert await sandbox.remote(probes.leave_behind, 3) == 3

    @scenario
    async def test_the_dead_are_not_kept(self, case: Case) -> None:
        async with case.provider().session(case.config()) as sandbox:
            assert await sandbox.remote(probes.orphans, 100) == 0

    @scenario
    async def test_whatever_lies_in_the_sockets_folder_is_removed(self, case: Case) -> None:
        folder = case.subject.socket_folder
        case.require(folder, "socket_folder")
        assert folder is not None
        async with case.provider().session(case.config()) as sandbox:
            await sandbox.remote(probes.litter, folder, 60)

    @scenario
    async def test_output_without_end_is_no_ones_burden(
        self, case: Case, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.CRITICAL, "agentix.sandbox")  # not a burden of this test either
        async with case.provider().session(case.config()) as sandbox:
            assert await sandbox.remote(probes.chatter, 5_000) == 5_000
            assert await sandbox.remote(probes.echo, 1) == 1

    @scenario
    async def test_a_sandbox_that_died_in_a_session_is_removed_with_it(self, case: Case) -> None:
        async with case.provider().session(case.config()) as sandbox:
            try:
                await sandbox.remote(probes.end_runtime)
            except RemoteCallError:
                return
            raise AssertionError("a call in a sandbox that ended has a value")
