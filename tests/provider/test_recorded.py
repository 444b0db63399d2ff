"""Sandboxes that are processes, by their record alone."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from agentix.errors import ProviderError, SandboxNotFound
from agentix.provider.hosted import HostedProcess
from agentix.provider.output import OutputTail
from agentix.provider.processes import SandboxProcesses
from agentix.provider.recorded import delete_recorded, get_recorded
from agentix.provider.runtime_folder import RuntimeFolder


async def test_one_that_cannot_be_ended_is_said_on_one_line_and_ended_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with tempfile.TemporaryDirectory(prefix="ax") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        folder = RuntimeFolder.create("some")
        process = HostedProcess.start([shutil.which("cat") or "/bin/cat"], tail=OutputTail())
        folder.record(SandboxProcesses(process.itself, process.itself).facts())
        name = folder.sandbox_id
        async with get_recorded(name, "some") as sandbox:
            assert sandbox.sandbox_id == name
        with monkeypatch.context() as patch:
            patch.setattr(os, "pidfd_open", refused)
            with pytest.raises(ProviderError, match=f"cannot end sandbox {name}: .*Too many open"):
                await delete_recorded(name, "some", grace=0.1, within=10)
        assert process.itself.runs()
        for _ in range(2):
            await delete_recorded(name, "some", grace=0.1, within=10)
        assert not process.itself.exists()
        assert list(Path(short, "agentix").iterdir()) == []
        with pytest.raises(SandboxNotFound):
            get_recorded(name, "some")
