"""What all groups of the suite share: where they run, and what they start from."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentix.provider.base import SandboxId
from agentix.testing.case import Case, Inside
from agentix.testing.census import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.testing.subject import Subject

_FIRST = 300  # seconds; images may be pulled or unpacked for the first sandbox


class Group:
    """Some tests of one subject, which a fixture ``subject`` (of scope ``class``) gives."""

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
        """Give temporary files and sockets a folder of their own, so that they can be counted."""
        tmp_path_factory.getbasetemp()  # which pytest makes when it is needed first: not in there
        # The path of a socket holds 107 bytes, so not in pytest's folder.
        folder = Path(tempfile.mkdtemp(prefix="ax"))
        folder.chmod(0o711)  # a sandbox's user may be any
        with pytest.MonkeyPatch.context() as patched:
            for name in ("TMPDIR", "XDG_RUNTIME_DIR"):
                patched.setenv(name, str(folder))
            patched.setattr(tempfile, "tempdir", None)
            yield Place(folder, secrets.token_hex(8))
        shutil.rmtree(folder, ignore_errors=True)

    @pytest.fixture(scope="class")
    @classmethod
    def case(
        cls, place: Place, subject: Subject, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Case]:
        """Give what a test works with, after a first session: it works at all.

        What is made once a process (a thread, a connection) is there from then on.
        """
        case = Case(subject, place, tmp_path_factory.mktemp("bundles"))

        async def first() -> None:
            async with asyncio.timeout(_FIRST), case.provider().session(case.config()) as sandbox:
                await sandbox.health()

        asyncio.run(first())
        yield case
        cls._remove_what_failed_tests_left(case)

    @pytest.fixture(scope="class")
    @classmethod
    def inside(cls, case: Case) -> Iterator[Inside]:
        """Give a sandbox to look around in."""
        provider = case.provider()
        with asyncio.Runner() as runner:
            sandbox = runner.run(provider.create(case.config()))
            try:
                yield Inside(sandbox, runner, case.subject.patience)
            finally:
                runner.run(sandbox.aclose())
                runner.run(provider.delete(sandbox.sandbox_id))

    @staticmethod
    def _remove_what_failed_tests_left(case: Case) -> None:
        for folder in case.place.folder.glob("agentix*/*"):
            with suppress(Exception):
                asyncio.run(case.provider().delete(SandboxId(folder.name)))
        for pid in case.place.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
