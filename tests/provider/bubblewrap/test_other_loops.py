"""Sandboxes are started in any event loop, such as uvloop's, which knows less than asyncio's."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any, cast

import pytest

from agentix.provider.bubblewrap.process import SandboxProcess, _umask
from agentix.provider.kit import OutputTail


class Foreign(asyncio.AbstractEventLoop):
    """A loop that is none of asyncio's own."""


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, Foreign])
def test_the_umask_is_set_as_the_loop_can(loop: type[asyncio.AbstractEventLoop]) -> None:
    made = loop()
    options = _umask(made)
    if loop is not Foreign:
        made.close()
        assert "preexec_fn" not in options
    before = os.umask(0o077)
    try:
        program = [sys.executable, "-c", "import os; print(os.umask(0))"]
        said = subprocess.check_output(program, **options)
    finally:
        os.umask(before)
    assert int(said) == 0o022


async def test_a_transport_need_not_be_asyncio_s() -> None:
    class Transport:
        def get_pid(self) -> int:
            return os.getpid()

    process = SandboxProcess(OutputTail())
    process.connection_made(cast("Any", Transport()))
    assert process._itself is not None
    assert process._itself.pid == os.getpid()
