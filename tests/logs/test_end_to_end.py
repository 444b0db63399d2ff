"""What functions log and print in a real worker arrives here once, in order, before the result."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from local_runtime import LocalRuntime, failing, far, noisy
from local_runtime.proxy import Proxy
from patience import eventually_async, still

from agentix import RemoteCallError, WorkerExited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OUT = "agentix.sandbox.stdout"
ERR = "agentix.sandbox.stderr"
NOISY = "local_runtime.noisy"


@pytest.fixture
def runtime() -> Iterator[LocalRuntime]:
    with LocalRuntime() as runtime:
        yield runtime


async def until(done: Callable[[], bool], within: float = 20) -> None:
    async with asyncio.timeout(within):
        while not done():
            await asyncio.sleep(0.005)


async def test_records_are_replayed_before_the_result_with_all_they_had(
    runtime: LocalRuntime, kept: Any
) -> None:
    async with runtime.client() as client:
        await client.remote(noisy.log_all_kinds)
        deep, root, failed = (r for r in kept.records if not r.name.startswith("agentix"))
        assert (deep.name, deep.levelname) == ("deep.module", "DEBUG")
        assert (deep.getMessage(), deep.msg, deep.args) == ("some of 5", "%s of %d", ("some", "5"))
        assert deep.user == {"id": 7}
        assert deep.filename == "noisy.py"
        assert deep.funcName == "log_all_kinds"
        assert deep.process != os.getpid()
        assert deep.sandbox_id == runtime.url
        assert (root.name, root.levelname) == ("root", "WARNING")
        assert failed.exc_text.endswith("ValueError: bang")
        assert failed.stack_info.startswith("Stack")
        for number in range(50):
            await client.remote(noisy.alog, f"a{number}")
            assert kept.messages()[-1] == f"a{number}"


async def test_what_is_printed_anyhow_arrives_line_by_line_and_once(
    runtime: LocalRuntime, kept: Any
) -> None:
    async with runtime.client() as client:
        await client.remote(noisy.print_all_kinds)
        assert kept.messages(OUT) == ["printed", "raw", "child", "from C", "spawned"]
        assert kept.messages(ERR) == ["complained", "raw error", "child error", "C error"]


async def test_odd_bytes_and_long_lines_are_text(runtime: LocalRuntime, kept: Any) -> None:
    async with runtime.client() as client:
        await client.remote(noisy.write, b"\x00\x00\x00\xff\n")
        assert kept.messages(OUT) == ["\\x00\\x00\\x00\\xff"]
        await client.remote(noisy.write, b"y" * 3_000_000 + b"\nend\n", 2)
        await until(lambda: kept.messages(ERR)[-1:] == ["end"])
        assert "".join(kept.messages(ERR)) == "y" * 3_000_000 + "end"
        await client.remote(noisy.write, b"no end")
        await until(lambda: kept.messages(OUT)[-1] == "no end")


async def test_a_new_worker_s_records_follow_those_of_the_one_that_died(
    runtime: LocalRuntime, kept: Any
) -> None:
    async with runtime.client() as client:
        await client.remote(noisy.burst, 1000)
        with pytest.raises(WorkerExited):
            await client.remote(failing.kill, signal.SIGKILL)
        await client.remote(noisy.burst, 5, 1000)
        numbers = [int(m.split()[1]) for m in kept.messages(NOISY)]
        assert numbers == list(range(1005))


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV])
async def test_last_words_arrive_before_the_news_of_the_death(
    runtime: LocalRuntime, kept: Any, signum: int
) -> None:
    async with runtime.client() as client:
        for number in range(5):
            with pytest.raises(WorkerExited):
                await client.remote(noisy.die_after, f"last words {number}", signum)
            assert kept.messages(NOISY)[-1] == f"last words {number}"
            assert kept.messages(OUT)[-1] == f"printed last words {number}"


async def test_a_crash_at_the_interpreter_s_exit_is_seen(runtime: LocalRuntime, kept: Any) -> None:
    async with runtime.client() as client:
        with pytest.raises(RemoteCallError):
            await client.remote(noisy.crash_at_exit)
        await until(lambda: "RuntimeError: crash at exit" in kept.messages(ERR))
        assert "ERROR:at.exit:logged at exit" in kept.messages(ERR)
        assert "last words" in kept.messages(OUT)


async def test_a_child_that_outlives_its_worker_is_still_heard(
    runtime: LocalRuntime, kept: Any
) -> None:
    async with runtime.client() as client:
        await client.remote(noisy.leave_talking_child, 0.5)
        with pytest.raises(WorkerExited):
            await client.remote(failing.kill, signal.SIGKILL)
        await until(lambda: kept.messages(OUT) == ["outlived"])


async def test_many_threads_lose_nothing(runtime: LocalRuntime, kept: Any) -> None:
    async with runtime.client() as client:
        await client.remote(noisy.threads, 8, 2000)
        found = [message.split() for message in kept.messages(NOISY)]
        assert len(found) == 16_000
        for name in range(8):
            assert [n for who, n in found if who == f"{name}"] == [f"{n}" for n in range(2000)]


async def test_a_burst_while_the_host_stands_still_is_there_when_it_goes_on(
    runtime: LocalRuntime, kept: Any
) -> None:
    async with runtime.client() as client:
        await client.remote(far.noop)
        calling = asyncio.create_task(client.remote(noisy.burst, 50_000))
        await asyncio.sleep(0.05)
        time.sleep(3)
        await calling
        messages = kept.messages(NOISY)
        notices = kept.messages("agentix.sandbox")
        dropped = sum(int(notice.split()[0].replace(",", "")) for notice in notices)
        assert len(messages) + dropped == 50_000
        assert not dropped or notices
        assert [int(m.split()[1]) for m in messages][-1] == 49_999


async def test_a_call_waits_for_its_own_records_and_not_for_those_of_one_that_logs_without_end(
    runtime: LocalRuntime, kept: Any
) -> None:
    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("line"):
                time.sleep(0.001)  # so that the host is far behind

    logging.getLogger().addHandler(slow := Slow())
    try:
        async with runtime.client() as client:
            await client.remote(far.noop)
            logging_ = asyncio.create_task(client.remote(noisy.log_until_stopped))
            await until(lambda: len(kept.records) > 500)
            began = time.monotonic()
            for _ in range(5):
                await client.remote(far.anoop)
            took = (time.monotonic() - began) / 5
            await client.remote(noisy.stop_logging)
            logging.getLogger().removeHandler(slow)
            count = await logging_
            behind = [int(m.split()[1]) for m in kept.messages(NOISY)]
            assert behind == list(range(count))
            assert took < 1
    finally:
        logging.getLogger().removeHandler(slow)


async def test_what_a_generator_logs_comes_before_its_items(
    runtime: LocalRuntime, kept: Any
) -> None:
    async with runtime.client() as client:
        async for number in client.remote(noisy.log_items, 50):
            assert f"item {number}" in kept.messages(NOISY)


async def test_what_overflows_is_counted_and_told(kept: Any) -> None:
    small = "**__import__('local_runtime.noisy', fromlist=['x']).small_journal(5000)"
    with LocalRuntime(settings=small) as runtime:
        async with runtime.client() as client:
            await client.remote(far.noop)
            calling = asyncio.create_task(client.remote(noisy.burst, 30_000))
            await asyncio.sleep(0.05)
            time.sleep(3)
            await calling
            messages = kept.messages(NOISY)
            notices = [r for r in kept.records if r.name == "agentix.sandbox"]
            assert notices
            assert all(notice.levelno == logging.WARNING for notice in notices)
            counts = [int(n.getMessage().split()[0].replace(",", "")) for n in notices]
            assert len(messages) + sum(counts) == 30_000
            numbers = [int(m.split()[1]) for m in messages]
            assert numbers == sorted(set(numbers))
            assert numbers[-1] == 29_999


async def test_a_connection_cut_again_and_again_loses_nothing_and_repeats_nothing(
    runtime: LocalRuntime, kept: Any
) -> None:
    async with Proxy(runtime) as proxy, proxy.client() as client:
        chance = random.Random(3)
        await client.remote(far.noop)
        for start in range(0, 10_000, 500):
            calling = asyncio.create_task(client.remote(noisy.slow_burst, 500, start))
            await asyncio.sleep(chance.random() * 0.1)
            proxy.cut()
            assert await calling == 500
            assert kept.messages(NOISY) == [f"{number}" for number in range(start + 500)]


@pytest.mark.parametrize("after", [1, 50_000, 1_000_000])
async def test_a_burst_cut_in_the_middle_of_an_answer_arrives_whole(
    runtime: LocalRuntime, kept: Any, after: int
) -> None:
    async with Proxy(runtime) as proxy, proxy.client() as client:
        await client.remote(far.noop)
        proxy.cut_after("back", after)
        assert await client.remote(noisy.burst, 20_000) == 20_000
        numbers = [int(m.split()[1]) for m in kept.messages(NOISY)]
        assert numbers == list(range(20_000))


async def test_two_clients_of_one_runtime_bring_each_record_once(
    runtime: LocalRuntime, kept: Any
) -> None:
    async with runtime.client() as one, runtime.client() as two:
        calls = [client.remote(noisy.burst, 2000, 2000 * n) for n, client in enumerate((one, two))]
        await asyncio.gather(*calls)
        await two.remote(noisy.log, "last")
        assert kept.messages()[-1] == "last"
        numbers = [int(m.split()[1]) for m in kept.messages(NOISY)[:-1]]
        assert sorted(numbers) == list(range(4000))
    async with runtime.client() as three:
        await three.remote(noisy.log, "again")
    assert kept.messages()[-1] == "again"
    assert len(kept.messages(NOISY)) == 4002


async def test_what_is_logged_after_a_result_comes_by_itself(
    runtime: LocalRuntime, kept: Any
) -> None:
    async with runtime.client() as client:
        await client.remote(noisy.log_later, 0.2, "later")
        await until(lambda: "later" in kept.messages(NOISY))
        await client.remote(noisy.log_later, 0.0, "at the end")
        await eventually_async(
            lambda: any("at the end" in file.read_text() for file in runtime.logs.iterdir()),
            "it is logged",
        )
    assert "at the end" in kept.messages(NOISY)


async def test_forks_and_finalizers_that_log_hang_nothing(runtime: LocalRuntime, kept: Any) -> None:
    async with runtime.client() as client:
        await asyncio.wait_for(client.remote(noisy.fork_while_logging, 30), 60)
        children = [m for m in kept.messages(ERR) if "child" in m]
        assert children == [f"WARNING:{NOISY}:child {n}" for n in range(30)]
        await asyncio.wait_for(client.remote(noisy.collect_while_logging, 2000), 60)
        found = [m for m in kept.messages(NOISY) if m.isdigit()]
        assert found == [f"{n}" for n in range(2000)]
        await until(lambda: kept.messages(NOISY).count("collected") == 2000)


async def test_libraries_that_log_all_they_do_feed_nothing_back(
    runtime: LocalRuntime, kept: Any
) -> None:
    asyncio.get_running_loop().set_debug(True)
    for name in ("asyncio", "aiohttp", "socketio", "engineio"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    async with runtime.client() as client:
        await client.remote(noisy.debug_everything)
        await client.remote(noisy.burst, 200)
        await eventually_async(still(lambda: len(kept.records)), "no more comes")
        assert len([m for m in kept.messages(NOISY) if m.startswith("line")]) == 200


async def test_a_slow_handler_delays_only_what_waits_for_it(
    runtime: LocalRuntime, kept: Any
) -> None:
    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            time.sleep(0.002)
            raise ValueError("and it raises")

    logger = logging.getLogger()
    logger.addHandler(slow := Slow())
    try:
        async with runtime.client() as client:
            await client.remote(noisy.burst, 300)
            assert len(kept.messages(NOISY)) == 300
    finally:
        logger.removeHandler(slow)


async def test_a_program_that_configures_logging_for_itself_is_still_followed(
    runtime: LocalRuntime, kept: Any
) -> None:
    async with runtime.client() as client:
        await client.remote(noisy.configure_own_logging)
        await client.remote(noisy.log, "hello")
        assert kept.messages(NOISY) == ["hello"]
        assert kept.messages(ERR) == ["own hello"]


async def test_the_sandbox_keeps_a_file_of_it_all(runtime: LocalRuntime, kept: Any) -> None:
    async with runtime.client() as client:
        await client.remote(noisy.log, "logged")
        await client.remote(noisy.print_all_kinds)
        [file] = list(runtime.logs.iterdir())
        assert file.name == f"sandbox-{os.uname().nodename}.log"
        await until(lambda: "spawned" in file.read_text())
        text = file.read_text()
    for said in (f"INFO     {NOISY}[", "logged", "stdout printed", "stderr C error"):
        assert said in text


async def test_a_level_in_the_sandbox_narrows_what_is_sent(kept: Any) -> None:
    with LocalRuntime(environment={**os.environ, "AGENTIX_LOG_LEVEL": "WARNING"}) as runtime:
        async with runtime.client() as client:
            await client.remote(noisy.log, "not sent")
            await client.remote(noisy.log_all_kinds)
    assert [r.levelname for r in kept.records] == ["WARNING", "ERROR"]
