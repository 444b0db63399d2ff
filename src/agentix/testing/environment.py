"""What a task finds set: its image's environment, what was asked for, and nothing else."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from agentix.testing import probes
from agentix.testing.case import scenario
from agentix.testing.census import MARK
from agentix.testing.group import Group

if TYPE_CHECKING:
    import pytest

    from agentix.testing.case import Case, Inside

_TOOLS = "/nix/runtime/bin"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
# What somebody's shell may well export, and what would change how programs in a sandbox run.
_OF_THE_HOST = {
    "AGENTIX_CONFORMANCE_SECRET": "s3cr3t",
    "BASH_ENV": "/host/bashrc",
    "LC_ALL": "C",
    "LD_LIBRARY_PATH": "/host/lib",
    "LD_PRELOAD": "/host/preload.so",
    "PYTHONPATH": "/host/python",
    "PYTHONSTARTUP": "/host/startup.py",
    "VIRTUAL_ENV": "/host/venv",
    **dict.fromkeys(_PROXIES, "http://127.0.0.1:9"),
}


class Environment(Group):
    """Variables, user, folder, and what processes inherit besides."""

    def test_it_is_the_images_environment(self, case: Case, inside: Inside) -> None:
        expected = case.subject.environment
        case.require(expected is not None, "environment")
        assert expected is not None
        found = inside.call(probes.environment)
        for name, value in expected.items():
            wanted = f"{value}:{_TOOLS}" if name == "PATH" else value
            assert found.get(name) == wanted, name
        more = found.keys() - expected.keys() - case.subject.adds - {MARK, "PATH"}
        assert not more, f"variables that nobody set: {sorted(more)}"

    def test_a_program_of_the_image_gets_the_same(self, case: Case, inside: Inside) -> None:
        program = case.subject.environment_program
        case.require(program, "environment_program")
        assert program is not None
        code, printed, errors = inside.call(probes.run, list(program))
        assert (code, errors) == (0, "")
        assert sorted(printed.splitlines()) == sorted(
            f"{name}={value}" for name, value in inside.call(probes.environment).items()
        )

    def test_the_images_own_programs_come_first(self, inside: Inside) -> None:
        folders = inside.call(probes.environment)["PATH"].split(":")
        assert folders[-1] == _TOOLS
        assert not [folder for folder in folders[:-1] if folder == _TOOLS]

    def test_nothing_of_ours_is_set(self, inside: Inside) -> None:
        found = inside.call(probes.environment)
        assert [name for name in found if name.startswith("AGENTIX") and name != MARK] == []
        assert [name for name in found if name.startswith(("LD_", "PYTHON", "NIX_"))] == []

    @scenario
    async def test_nothing_of_the_host_reaches_it_nor_stands_in_the_way(
        self, case: Case, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in _OF_THE_HOST.items():
            monkeypatch.setenv(name, value)
        async with case.provider().session(case.config()) as sandbox:
            assert (await sandbox.health()).status == "ok"
            found = await sandbox.remote(probes.environment)
        case.require(case.subject.keeps_environment, "keeps_environment")
        image = case.subject.environment or {}
        leaked = {
            name: found[name]
            for name, value in _OF_THE_HOST.items()
            if found.get(name) == value and image.get(name) != value
        }
        assert leaked == {}

    @scenario
    async def test_what_was_asked_for_is_added_as_it_is(self, case: Case) -> None:
        asked = {
            "ASKED": "a b=c\n'\"$HOME` \\",
            "ASKED_EMPTY": "",
            "ASKED_TEXT": "é✓",
            "asked.odd-name": "x",
            "PWD": "/asked/for",  # some launchers set it
        }
        overridden = {
            name: "asked for" for name in case.subject.environment or {} if name != "PATH"
        }
        async with case.provider().session(case.config(env=asked | overridden)) as sandbox:
            found = await sandbox.remote(probes.environment)
        assert {name: found.get(name) for name in asked | overridden} == asked | overridden

    def test_it_runs_as_the_images_user_in_its_folder(self, case: Case, inside: Inside) -> None:
        case.require(case.subject.user or case.subject.folder, "user, folder")
        found = inside.call(probes.identity)
        if case.subject.user is not None:
            assert (found["user"], found["group"]) == case.subject.user
        if case.subject.folder is not None:
            assert found["folder"] == case.subject.folder

    @scenario
    async def test_umask_and_signals_of_the_host_are_not_the_tasks(self, case: Case) -> None:
        number = signal.SIGUSR1
        umask, handler = os.umask(0o077), signal.signal(number, signal.SIG_IGN)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        try:
            async with case.provider().session(case.config()) as sandbox:
                found = await sandbox.remote(probes.identity)
                ignored = await sandbox.remote(probes.ignored_signals)
                status = await sandbox.remote(probes.status)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            signal.signal(number, handler)
            os.umask(umask)
        assert oct(found["umask"]) == oct(0o022)
        assert ignored == []
        assert int(status["SigBlk"], 16) == 0
