"""A command that is told to end does so through what it has begun, and says no more than that."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

# A command whose tasks are busy all the time, so that a signal arrives within one of them.
BUSY = """
    import asyncio, sys
    from agentix.cli import app, main

    async def turn():
        try:
            while True:
                sum(range(10_000))
                await asyncio.sleep(0)
        finally:
            print("task ended", flush=True)

    async def work():
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(turn())
            print("busy", flush=True)

    app.run = lambda _: asyncio.run(work())
    main()
"""
WAITING = """
    import sys
    from agentix.cli import app, main

    def work(_):
        try:
            print("busy", flush=True)
            sys.stdin.read()
        finally:
            print("task ended", flush=True)

    app.run = work
    main()
"""


@pytest.mark.parametrize("code", [BUSY, WAITING], ids=["tasks", "no tasks"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_ends_in_order(code: str, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert set(out.splitlines()) == {"task ended"}
    assert err == ("agentix: interrupted\n" if number == signal.SIGINT else "")
    assert process.returncode == 128 + number


def test_in_the_background_of_a_script_sigterm_ends_a_command_as_well() -> None:
    """A shell has those ignore SIGINT."""
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + textwrap.dedent(WAITING)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[0] == "task ended\n"
    assert process.returncode == 143
