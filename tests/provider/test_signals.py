"""A process that is told to end ends its sandboxes first, then itself as if nothing were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from patience import eventually
from shelves import ENDED, HOST, host, left


def test_in_the_middle_of_a_session(shelf: Path) -> None:
    with host(shelf, "asyncio.run(use())") as process:
        process.says("inside")
        assert left(shelf) == 1
        assert process.end() == (ENDED, "")
    assert left(shelf) == 0


def test_in_the_middle_of_create(shelf: Path) -> None:
    with host(shelf, "asyncio.run(use(Shelf('create')))") as process:
        process.says("creating")
        assert left(shelf) == 1
        assert process.end() == (ENDED, "")
    assert left(shelf) == 0


def test_in_the_middle_of_delete(shelf: Path) -> None:
    program = """
    async def main():
        async with Shelf("delete").session(CONFIG):
            pass
        say("after it")

    asyncio.run(main())
    """
    with host(shelf, program) as process:
        process.says("deleting")
        process.process.send_signal(signal.SIGTERM)
        (shelf.parent / "go").touch()
        assert process.ended() == (ENDED, "")
        assert process.process.stdout is not None
    assert left(shelf) == 0


@pytest.mark.parametrize("slow", ["", "create", "delete"])
def test_several_sessions_at_once(shelf: Path, slow: str) -> None:
    program = f"""
    async def main():
        await asyncio.gather(use(), use(), use(Shelf("{slow}")), asyncio.sleep(600))

    asyncio.run(main())
    """
    with host(shelf, program) as process:
        process.says("inside", "inside", "creating" if slow == "create" else "inside")
        process.process.send_signal(signal.SIGTERM)
        if slow == "delete":
            process.says("deleting")
            eventually(lambda: left(shelf) == 1, "the other sandboxes are gone")
            assert process.process.poll() is None
            (shelf.parent / "go").touch()
        assert process.ended() == (ENDED, "")
    assert left(shelf) == 0


def test_one_session_in_the_other(shelf: Path) -> None:
    program = """
    async def main():
        async with Shelf().session(CONFIG), Shelf().session(CONFIG):
            await use()

    asyncio.run(main())
    """
    with host(shelf, program) as process:
        process.says("inside")
        assert left(shelf) == 3
        assert process.end() == (ENDED, "")
    assert left(shelf) == 0


def test_what_the_task_does_at_its_end_is_done_before_the_sandbox_goes(shelf: Path) -> None:
    program = """
    async def main():
        async with Shelf().session(CONFIG):
            say("inside")
            try:
                await asyncio.sleep(600)
            finally:
                await asyncio.sleep(0.1)
                (SHELF.parent / "kept").write_text(str(len(list(SHELF.iterdir()))))

    asyncio.run(main())
    """
    with host(shelf, program) as process:
        process.says("inside")
        assert process.end() == (ENDED, "")
    assert (shelf.parent / "kept").read_text() == "1"


def test_a_second_signal_kills_at_once(shelf: Path) -> None:
    with host(shelf, "asyncio.run(use(Shelf('delete')))") as process:
        process.says("inside")
        process.process.send_signal(signal.SIGTERM)
        process.says("deleting")
        assert process.end() == (ENDED, "")
    assert left(shelf) == 1


def test_no_session_begins_while_others_are_ended(shelf: Path) -> None:
    program = """
    async def again():
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await use()

    async def main():
        await asyncio.gather(again(), use(Shelf("delete")))

    asyncio.run(main())
    """
    with host(shelf, program) as process:
        process.says("inside", "inside")
        process.process.send_signal(signal.SIGTERM)
        process.says("deleting")
        eventually(lambda: left(shelf) == 1, "the other sandbox is gone")
        (shelf.parent / "go").touch()
        assert process.ended()[0] == ENDED
    assert left(shelf) == 0


def test_a_loop_that_does_not_turn_is_given_up(shelf: Path) -> None:
    program = """
    from agentix.provider import signals
    signals._DEAF = 0.3

    async def main():
        async with Shelf().session(CONFIG):
            say("inside")
            time.sleep(600)

    asyncio.run(main())
    """
    with host(shelf, program) as process:
        process.says("inside")
        assert process.end() == (ENDED, "")


def test_a_task_that_does_not_end_is_given_up(shelf: Path) -> None:
    program = """
    from agentix.provider import base, signals
    signals._PATIENCE = base._CLOSE_BOUND = 0.1
    Shelf.delete_bound = 0.1

    async def main():
        async with Shelf().session(CONFIG):
            say("inside")
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(600)

    asyncio.run(main())
    """
    with host(shelf, program) as process:
        process.says("inside")
        assert process.end() == (ENDED, "")


@pytest.mark.parametrize(
    "outside",
    ["loop.close()", "pass", "loop.run_until_complete(asyncio.sleep(600))"],
    ids=["closed", "between runs", "running"],
)
def test_a_session_whose_task_has_ended_keeps_nobody(shelf: Path, outside: str) -> None:
    program = f"""
    loop = asyncio.new_event_loop()
    stack = contextlib.AsyncExitStack()
    loop.run_until_complete(stack.enter_async_context(Shelf().session(CONFIG)))
    say("outside")
    {outside}
    time.sleep(600)
    """
    with host(shelf, program) as process:
        process.says("outside")
        time.sleep(0.1)
        assert process.end()[0] == ENDED


def test_a_deletion_that_fails_is_told_of_and_the_process_dies_all_the_same(shelf: Path) -> None:
    with host(shelf, "asyncio.run(use(Shelf(broken=True)))") as process:
        process.says("inside")
        status, errors = process.end()
    assert status == ENDED
    assert errors == "a session failed while SIGTERM ended it: it does not go away\n"


def test_an_error_of_the_body_is_told_of_with_that_of_the_deletion(shelf: Path) -> None:
    program = """
    async def main():
        async with Shelf(broken=True).session(CONFIG):
            say("inside")
            try:
                await asyncio.sleep(600)
            finally:
                raise ValueError("results cannot be kept")

    asyncio.run(main())
    """
    with host(shelf, program) as process:
        process.says("inside")
        status, errors = process.end()
    assert status == ENDED
    said = "ValueError: results cannot be kept; then it does not go away"
    assert errors == f"a session failed while SIGTERM ended it: {said}\n"


def test_a_deletion_that_fails_when_it_is_told_in_the_middle_of_it(shelf: Path) -> None:
    program = """
    async def main():
        async with Shelf("delete", broken=True).session(CONFIG):
            pass

    asyncio.run(main())
    """
    with host(shelf, program) as process:
        process.says("deleting")
        process.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        (shelf.parent / "go").touch()
        status, errors = process.ended()
    assert status == ENDED
    assert errors == "a session failed while SIGTERM ended it: it does not go away\n"


def test_what_fails_in_the_middle_of_create_is_nothing_to_tell_of(shelf: Path) -> None:
    program = """
    from agentix.provider import signals
    from agentix.provider.kit import to_the_end

    class Refused(Shelf):
        async def create(self, config):
            async def start():
                say("starting")
                while not signals._open.told:
                    await asyncio.sleep(0.01)
                raise ProviderError("refused, for the first time")

            async def undo():
                pass

            async with undone_on_error(undo, what="undoing", within=20):
                await to_the_end(start())

    asyncio.run(use(Refused()))
    """
    with host(shelf, program) as process:
        process.says("starting")
        assert process.end() == (ENDED, "")


@pytest.mark.parametrize("busy", [False, True], ids=["in order", "given up"])
def test_the_first_process_of_a_container_ends_too(shelf: Path, busy: bool) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("namespaces of processes cannot be made here")
    program = textwrap.dedent(HOST) + "assert os.getpid() == 1\n"
    if busy:
        program += "from agentix.provider import signals\nsignals._DEAF = 0.3\n"
        program += "async def stuck():\n await asyncio.sleep(0.2)\n say(1)\n time.sleep(600)\n"
        program += "async def both(): await asyncio.gather(use(), stuck())\nasyncio.run(both())\n"
    else:
        program += "asyncio.run(use())\n"
    process = subprocess.Popen(
        [*unshare, sys.executable, "-c", program, str(shelf)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        assert not busy or process.stdout.readline() == "1\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        os.kill(int(children), signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.communicate()
    assert left(shelf) == (1 if busy else 0)
