"""Who is in charge of SIGTERM: whoever was before, and sessions only where nobody is."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from shelves import ENDED, host, left

if TYPE_CHECKING:
    from pathlib import Path


def test_after_its_sessions_a_process_ends_as_before(shelf: Path) -> None:
    program = """
    async def main():
        for _ in range(2):
            async with Shelf().session(CONFIG):
                pass

    for _ in range(2):
        asyncio.run(main())
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    say("outside")
    time.sleep(600)
    """
    with host(shelf, program) as process:
        process.says("outside")
        assert process.end() == (ENDED, "")


def test_a_handler_of_the_users_own_stays_in_charge(shelf: Path) -> None:
    program = """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    asyncio.run(use())
    """
    with host(shelf, program) as process:
        process.says("inside")
        assert process.end() == (7, "")
    assert left(shelf) == 0  # asyncio.run cancels what is left when it is left by an exception


def test_a_loops_handler_of_the_users_own_stays_in_charge(shelf: Path) -> None:
    program = """
    async def main():
        done = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
        async with Shelf().session(CONFIG):
            say("inside")
            await done.wait()

    asyncio.run(main())
    """
    with host(shelf, program) as process:
        process.says("inside")
        assert process.end() == (0, "")
    assert left(shelf) == 0


def test_a_handler_that_is_set_in_a_session_is_left_alone(shelf: Path) -> None:
    program = """
    async def main():
        async with Shelf().session(CONFIG):
            signal.signal(signal.SIGTERM, handler)

    handler = lambda *_: sys.exit(7)
    asyncio.run(main())
    assert signal.getsignal(signal.SIGTERM) is handler
    say("outside")
    time.sleep(600)
    """
    with host(shelf, program) as process:
        process.says("outside")
        assert process.end() == (7, "")


def test_our_handler_put_back_too_late_does_not_keep_the_process(shelf: Path) -> None:
    program = """
    async def main():
        async with Shelf().session(CONFIG):
            return signal.signal(signal.SIGTERM, signal.SIG_IGN)

    signal.signal(signal.SIGTERM, asyncio.run(main()))
    say("outside")
    time.sleep(600)
    """
    with host(shelf, program) as process:
        process.says("outside")
        assert process.end() == (ENDED, "")


def test_ignoring_it_is_respected(shelf: Path) -> None:
    program = """
    async def main():
        async with Shelf().session(CONFIG):
            say("inside")
            while not (SHELF.parent / "go").exists():
                await asyncio.sleep(0.01)

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    asyncio.run(main())
    """
    with host(shelf, program) as process:
        process.says("inside")
        process.process.send_signal(signal.SIGTERM)
        (shelf.parent / "go").touch()
        assert process.ended() == (0, "")
    assert left(shelf) == 0


def test_sessions_of_other_threads_leave_it_as_it_is(shelf: Path) -> None:
    program = """
    threading.Thread(target=asyncio.run, args=[use()], daemon=True).start()
    time.sleep(600)
    """
    with host(shelf, program) as process:
        process.says("inside")
        assert process.end() == (ENDED, "")
    assert left(shelf) == 1  # what a lease is for


def test_forked_children_die_by_it_and_leave_their_parents_sandboxes_alone(shelf: Path) -> None:
    program = """
    async def main():
        async with Shelf().session(CONFIG):
            for _ in range(20):
                child = multiprocessing.get_context("fork").Process(target=time.sleep, args=[600])
                child.start()
                child.terminate()
                child.join(20)
                assert child.exitcode == -15
            await use()

    asyncio.run(main())
    """
    with host(shelf, program) as process:
        process.says("inside")
        assert left(shelf) == 2
        assert process.end() == (ENDED, "")
    assert left(shelf) == 0


def test_an_interrupt_is_asyncios(shelf: Path) -> None:
    program = """
    async def main():
        await asyncio.gather(use(), use())

    asyncio.run(main())
    """
    with host(shelf, program) as process:
        process.says("inside", "inside")
        status, errors = process.end(signal.SIGINT)
    assert status == -signal.SIGINT
    assert errors.endswith("KeyboardInterrupt\n")
    assert left(shelf) == 0
