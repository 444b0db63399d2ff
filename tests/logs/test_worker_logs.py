"""What the worker's handler makes of records, and that it harms nobody."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import logging.config
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from patience import eventually_async

from agentix.wire import messages, records
from agentix.wire.messages import Record
from agentix.wire.records import Log
from agentix_runtime.channel import Channel
from agentix_runtime.pair import pair
from agentix_runtime.parcel import Parcel, Payload
from agentix_runtime.worker import logs

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator


DROPPED = r"([\d,]+) records were dropped"


class Server:
    """The other end of a worker's channel: collects records."""

    def __init__(self, sock: socket.socket) -> None:
        self.entries: list[Any] = []
        self._channel = Channel(sock, self._receive, lambda _: None)
        self.close = self._channel.close

    def _receive(self, head: bytes, payload: Payload | None) -> None:
        messages.load(head, Record)
        assert payload is not None
        with contextlib.ExitStack() as stack:
            if isinstance(payload, Parcel):
                stack.callback(payload.close)
                payload = payload.opened()
            self.entries += records.load_all(records.prefixed(bytes(payload)), 1)

    async def until(self, count: int) -> list[Log]:
        async with asyncio.timeout(20):
            while len(self.entries) < count:
                await asyncio.sleep(0.001)
        assert all(isinstance(entry, Log) for entry in self.entries), self.entries
        return self.entries


class Installed:
    """The worker's handler, on a logger of its own instead of the root."""

    def __init__(self) -> None:
        ours, theirs = pair()
        self.server = Server(ours)
        self.channel = Channel(theirs, lambda *_: None, lambda _: None)
        self.sender = logs.Sender(self.channel)
        self.handler = logs._Handler(self.sender)
        self.logger = logging.Logger("test.logger", 1)
        self.logger.addHandler(self.handler)


@contextlib.contextmanager
def installed() -> Iterator[Installed]:
    made = Installed()
    try:
        yield made
    finally:
        made.channel.close()
        made.server.close()


async def test_a_record_keeps_what_it_says() -> None:
    with installed() as it:
        it.logger.info("%s is %d", "x", 5, extra={"user": {"id": 7, "tags": ("a", "b")}})
        [entry] = await it.server.until(1)
        assert (entry.logger, entry.level, entry.message) == ("test.logger", 20, "x is 5")
        assert (entry.template, entry.arguments) == ("%s is %d", ["x", "5"])
        assert entry.extra == {"user": {"id": 7, "tags": ["a", "b"]}}
        assert entry.path == __file__
        assert entry.function == "test_a_record_keeps_what_it_says"
        assert entry.line > 0
        assert entry.process == os.getpid()
        assert entry.thread_name == threading.current_thread().name
        task = asyncio.current_task()
        assert task is not None
        assert entry.task == task.get_name()


async def test_every_level_and_an_exception_with_its_stack() -> None:
    with installed() as it:
        it.logger.log(1, "deep")
        it.logger.log(35, "odd")
        try:
            raise ValueError("bang")
        except ValueError:
            it.logger.exception("failed", stack_info=True)
        deep, odd, failed = await it.server.until(3)
        assert (deep.level, odd.level, failed.level) == (1, 35, 40)
        assert failed.exception.startswith("Traceback (most recent call last):\n")
        assert failed.exception.endswith("ValueError: bang")
        assert failed.stack.startswith("Stack (most recent call last):")


class Odd:
    """Neither text nor repr can be had."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Chatty:
    """Logs while it is logged."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def __repr__(self) -> str:
        self._logger.debug("asked %r", self)
        return "chatty"


async def test_what_cannot_be_told_is_told_as_far_as_it_goes() -> None:
    with installed() as it:
        it.logger.info("%d", "no number")
        it.logger.info("%s", Odd(), extra={"odd": Odd(), "huge": 1 << 200, "set": {1}})
        it.logger.info(Odd())
        it.logger.info("lone \udc80 surrogate")
        it.logger.info("%(a)s", {"a": 1})
        first, second, third, fourth, fifth = await it.server.until(5)
        assert first.message == "%d <its arguments do not fit: TypeError>"
        assert first.arguments == ["no number"]
        assert "RuntimeError" in second.message
        assert "RuntimeError" in str(second.extra["odd"])
        assert second.extra["huge"] == str(1 << 200)
        assert second.extra["set"] == "{1}"
        assert "RuntimeError" in third.message
        assert fourth.message == "lone \udc80 surrogate"
        assert fifth.message == "1"


async def test_a_record_that_logs_while_it_is_taken_apart_ends() -> None:
    with installed() as it:
        it.logger.info("%r", Chatty(it.logger))
        it.logger.info("next")
        async with asyncio.timeout(20):
            while not it.server.entries or it.server.entries[-1].message != "next":
                await asyncio.sleep(0.001)
        found = [entry.message for entry in it.server.entries]
        assert "chatty" in found
        notes = [text for text in found if text.endswith("too many at a time")]
        assert notes
        assert len(found) < 50


async def test_an_enormous_record_is_cut_where_it_is_long() -> None:
    with installed() as it:
        it.logger.info("a" * 1_000_000)
        it.logger.info("%s", "b" * 40_000_000, extra={"c": "c" * 1_000_000})
        whole, cut = await it.server.until(2)
        assert whole.message == "a" * 1_000_000
        assert len(cut.message) < 100_000
        assert "left out" in cut.message
        assert len(str(cut.extra)) < 10_000


async def test_threads_that_log_at_once_lose_nothing_and_keep_their_order() -> None:
    with installed() as it:

        def work(name: int) -> None:
            for number in range(2000):
                it.logger.info("%d %d", name, number)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        found = [entry.message.split() for entry in await it.server.until(16_000)]
        for thread in threads:
            thread.join()
        for name in range(8):
            assert [n for who, n in found if who == f"{name}"] == [f"{n}" for n in range(2000)]


async def test_a_server_that_stands_still_holds_a_logger_up_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "_PATIENCE", 0.5)
    with installed() as it:  # this loop is the server's too, and does not turn
        start = time.monotonic()
        for _ in range(40):
            it.logger.info("x" * 100_000)
        assert time.monotonic() - start < 5, "it waits once, not for each record"
        it.logger.info("last")
        await it.server.until(10)
        it.logger.info("again")
        async with asyncio.timeout(20):
            while it.server.entries[-1].message != "again":
                await asyncio.sleep(0.01)
        notes = [e for e in it.server.entries if e.logger == "agentix.sandbox"]
        [note] = notes
        dropped = int(note.message.split()[0])
        assert dropped > 0
        assert len(it.server.entries) - 1 + dropped == 42


async def test_a_finalizer_or_signal_handler_may_log_inside_of_the_channel() -> None:
    with installed() as it, it.channel._lock:
        it.logger.info("inside")
        [entry] = await it.server.until(1)
        assert entry.message == "inside"


async def test_signals_that_log_during_logging_hold_nothing_up() -> None:
    with installed() as it:
        count = within = deepest = 0

        def handler(*_: object) -> None:
            nonlocal count, within, deepest
            count, within = count + 1, within + 1
            deepest = max(deepest, within)
            it.logger.info("signal")
            within -= 1

        before = signal.signal(signal.SIGVTALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.002, 0.002)
            for _ in range(3000):
                it.logger.info("plain")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
        it.logger.info("last")  # behind which nothing is left to be counted

        def kept(message: str) -> int:
            return [entry.message for entry in it.server.entries].count(message)

        def dropped() -> int:
            found = (re.match(DROPPED, entry.message) for entry in it.server.entries)
            return sum(int(notice[1].replace(",", "")) for notice in found if notice)

        await eventually_async(
            lambda: kept("signal") + dropped() >= count, "each record, or that it was dropped"
        )
        assert kept("signal") + dropped() == count > 0
        assert kept("plain") == 3000
        # Only records deep inside of one another are dropped.
        assert dropped() == 0 or deepest > 3


async def test_after_the_channel_s_end_records_go_to_standard_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with installed() as it:
        it.channel.close()
        it.logger.warning("late")
        it.logger.debug("not that much")
        assert capfd.readouterr().err == "WARNING:test.logger:late\n"


async def test_a_filter_on_the_handler_is_obeyed() -> None:
    with installed() as it:
        it.handler.addFilter(lambda record: "secret" not in record.getMessage())
        it.logger.info("a secret")
        it.logger.info("plain")
        [entry] = await it.server.until(1)
        assert entry.message == "plain"


PROGRAM = """
import asyncio, logging, logging.config, os, socket, sys
from agentix_runtime.channel import Channel
from agentix_runtime.worker import logs, forks
async def main():
    sock = socket.socket(fileno=int(sys.argv[1]))
    channel = Channel(sock, lambda *_: None, lambda _: None)
    forks.guard(channel.abandon, asyncio.get_running_loop(), asyncio.get_running_loop()._selector)
    logs.install(logs.Sender(channel))
    exec(sys.argv[2])
asyncio.run(main())
"""


async def run(code: str, **environment: str) -> tuple[list[Log], str]:
    """Run code in a process with the handler on its root logger."""
    ours, theirs = pair()
    server = Server(ours)
    theirs.set_inheritable(True)
    arguments = [sys.executable, "-c", PROGRAM, str(theirs.fileno()), code]
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env={**os.environ, **environment},
        )
        theirs.close()
        _, said = await asyncio.wait_for(process.communicate(), 30)
        server._channel.drain()
    finally:
        server.close()
    return server.entries, said.decode()


async def test_debug_records_of_all_loggers_are_sent_unless_the_environment_narrows_them() -> None:
    code = "logging.getLogger('a.b').debug('fine'); logging.info('plain'); logging.error('bad')"
    found, _ = await run(code)
    assert [e.message for e in found if e.logger != "asyncio"] == ["fine", "plain", "bad"]
    found, _ = await run(code, AGENTIX_LOG_LEVEL="warning")
    assert [entry.message for entry in found] == ["bad"]
    found, _ = await run(code, AGENTIX_LOG_LEVEL="loud")
    assert "loud" in found[0].message
    assert len(found) == 4


@pytest.mark.parametrize(
    "code",
    [
        "logging.basicConfig(level=10, force=True)",
        "logging.config.dictConfig({'version': 1, 'root': {'level': 'DEBUG', 'handlers': []}})",
        "logging.basicConfig(level=50)",
    ],
)
async def test_a_function_that_configures_logging_does_not_take_the_host_s_away(code: str) -> None:
    found, _ = await run(f"{code}; logging.info('still here')")
    assert "still here" in [entry.message for entry in found]


async def test_what_is_logged_right_before_a_kill_arrives() -> None:
    for _ in range(5):
        found, _ = await run("logging.error('last words'); os.kill(os.getpid(), 9)")
        assert [entry.message for entry in found] == ["last words"]


async def test_what_is_logged_while_the_interpreter_ends_is_written_to_standard_error() -> None:
    found, said = await run(
        "import atexit; atexit.register(lambda: logging.error('at exit'))\n"
        "logging.error('before'); channel.close()"
    )
    assert [entry.message for entry in found] == ["before"]
    assert "ERROR:root:at exit\n" in said


async def test_a_forked_child_writes_its_records_to_standard_error() -> None:
    found, said = await run(
        "import threading\n"
        "def busy():\n"
        "    while True: logging.info('x' * 1000)\n"
        "threading.Thread(target=busy, daemon=True).start()\n"
        "for number in range(30):\n"
        "    if os.fork() == 0:\n"
        "        logging.error('child %d', number); os._exit(0)\n"
        "for _ in range(30): os.wait()\n"
        "logging.error('parent'); os._exit(0)",
        # Python 3.12 and later warn of a fork beside threads, which this is about.
        PYTHONWARNINGS="ignore::DeprecationWarning",
    )
    assert sorted(said.splitlines()) == sorted(f"ERROR:root:child {n}" for n in range(30))
    assert "parent" in [entry.message for entry in found[-1000:]]
