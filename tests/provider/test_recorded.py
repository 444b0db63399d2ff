"""Sandboxes that are processes, by their record alone."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from patience import eventually

from agentix.errors import AgentixError, ProviderError, SandboxNotFound
from agentix.provider import recorded
from agentix.provider.apptainer import ApptainerProvider
from agentix.provider.base import SandboxConfig, SandboxProvider
from agentix.provider.bubblewrap import BubblewrapProvider
from agentix.provider.hosted import HostedProcess
from agentix.provider.output import OutputTail
from agentix.provider.owner import Owner
from agentix.provider.processes import SandboxProcesses
from agentix.provider.recorded import delete_recorded, get_recorded, remove_leftovers
from agentix.provider.runtime_folder import RuntimeFolder
from agentix.provider.uv import UvProvider


def looked() -> None:
    """Wait until nothing looks for leftovers any more."""
    for thread in threading.enumerate():
        if thread.name.startswith("agentix-leftovers"):
            thread.join(20)


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


def test_what_killed_processes_left_goes_beside_a_creation_and_only_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(prefix="ax") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        program = "from agentix.provider.owner import Owner; print(Owner.current().text())"
        gone = Owner.parse(subprocess.check_output([sys.executable, "-c", program]))
        assert gone is not None
        assert gone.lives() is False
        ended = HostedProcess.start([shutil.which("true") or "/bin/true"], tail=OutputTail())
        eventually(lambda: ended.returncode == 0, "it has ended")
        running = HostedProcess.start([shutil.which("cat") or "/bin/cat"], tail=OutputTail())

        def made(owner: Owner, process: HostedProcess | None, kind: str = "swept") -> Path:
            folder = RuntimeFolder.create(kind)
            if process is not None:
                folder.record(SandboxProcesses(process.itself, process.itself).facts())
            record = folder.read_record()
            assert record is not None
            folder._write_record(record.model_copy(update={"owner": owner}))
            return folder.path

        elsewhere = gone.model_copy(update={"namespace": 1})
        stays = {
            made(gone, running),
            made(Owner.current(), ended),
            made(Owner.current(), None),
            made(elsewhere, ended),
            made(gone, ended, "other"),
        }
        unreadable = made(gone, ended)
        (unreadable / "record.json").write_text("{}")
        stays.add(unreadable)
        leaves = {made(gone, ended), made(gone, None)}
        remove_leftovers("swept")
        eventually(lambda: not any(path.exists() for path in leaves), "the leftovers are gone")
        looked()
        assert all(path.is_dir() for path in stays)
        later = made(gone, ended)
        remove_leftovers("swept")  # it has just looked
        looked()
        assert later.is_dir()
        running.itself.send(signal.SIGKILL)
        eventually(lambda: running.returncode is not None, "it has ended")


@pytest.mark.parametrize(
    "provider", [ApptainerProvider, BubblewrapProvider, UvProvider], ids=lambda each: each.name
)
async def test_a_creation_takes_leftovers_away_even_when_it_fails(
    provider: type[SandboxProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "_looked", {})
    with tempfile.TemporaryDirectory(prefix="ax") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        folder = RuntimeFolder.create(provider.name)
        record = folder.read_record()
        assert record is not None
        gone = record.owner.model_copy(update={"started": record.owner.started - 1})
        folder._write_record(record.model_copy(update={"owner": gone}))
        with pytest.raises(AgentixError):
            await provider().create(SandboxConfig(image="host", bundle=f"{short}/nothing"))
        eventually(lambda: not folder.path.exists(), "the leftover is gone")
        looked()
