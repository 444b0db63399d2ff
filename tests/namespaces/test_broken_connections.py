"""What becomes of events and requests when a side, or what is between them, goes away."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import time
import types
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from local_runtime import LocalRuntime, descriptors, far, plugin, python
from patience import eventually_async, still

from agentix.errors import RemoteSioError, RuntimeUnreachable
from agentix.sio import AsyncClientNamespace
from agentix.wire import arguments, messages
from agentix.wire.frames import body_prefix, pieces
from agentix.wire.messages import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator


class Host(AsyncClientNamespace):
    """The host's half of the plugin."""

    def __init__(self) -> None:
        super().__init__("/plugin")
        self.events: list[Any] = []
        self.handled: list[Any] = []
        self.came = asyncio.Event()
        self.waits = asyncio.Event()

    async def on_event(self, data: Any) -> None:
        self.events.append(data)
        self.came.set()

    async def on_double(self, data: Any) -> Any:
        self.handled.append(data)
        return data * 2

    async def on_slow(self, data: Any) -> Any:
        self.came.set()
        await self.waits.wait()
        return data


async def until(true: Callable[[], object]) -> None:
    """Wait for something, for a bounded time."""
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.005)


async def test_events_and_requests_pass_once_however_often_the_connection_is_cut(
    fresh: LocalRuntime, make_host: Any, make_wire: Any
) -> None:
    ns = Host()
    async with (
        make_wire(fresh) as wire,
        make_host(wire.url, fresh.token, ns) as host,
        make_host(fresh.url, fresh.token) as direct,
    ):
        await host.remote(plugin.load)
        emitting = asyncio.create_task(direct.remote(plugin.emit_numbers, "event", 400, 0.002))
        asking = asyncio.create_task(direct.remote(plugin.requests, "double", 100))
        sending = asyncio.create_task(_send(ns, 200))
        for _ in range(15):
            await asyncio.sleep(random.uniform(0.01, 0.15))
            await wire.cut()
        await emitting
        assert await asking == [2 * n for n in range(100)]
        assert await sending == list(range(200))
        await until(lambda: len(ns.events) == 400)
        assert ns.events == list(range(400))
        assert sorted(ns.handled) == list(range(100))
        assert await direct.remote(plugin.noted) == list(range(200))
        assert wire.connections > 5


async def _send(ns: Host, count: int) -> list[Any]:
    values = []
    for number in range(count):
        await ns.emit("note", number)
        values.append(await ns.call("echo", number))
    return values


async def test_calls_that_wait_for_a_connection_fail_when_the_client_is_closed(
    make_host: Any, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        url = f"http+unix://{quote(str(tmp_path / 's'), safe='')}"
        for namespaces, knobs in (((Host(),), {}), ((), {"http_sync_ms": None})):
            host = make_host(url, "secret", *namespaces, **knobs)
            call = asyncio.create_task(host.remote(far.anoop))
            await until(lambda: host.events._uplink._opening is not None)  # noqa: B023
            await host.close()
            with pytest.raises(RuntimeUnreachable, match="the client was closed"):
                await asyncio.wait_for(call, 20)


async def test_a_client_whose_closing_is_cancelled_leaves_nothing_open(
    fresh: LocalRuntime, make_host: Any
) -> None:
    before = asyncio.all_tasks(), sorted(descriptors())
    for step in count(1):
        host = make_host(fresh.url, fresh.token, Host())
        await host.remote(far.anoop)
        closing = asyncio.create_task(_close_cancelled_at(step, host))
        await asyncio.wait([closing])
        await eventually_async(
            lambda: (asyncio.all_tasks(), sorted(descriptors())) == before,
            f"all is closed where closing was cancelled at its wait number {step}",
        )
        if not closing.cancelled():  # it does not wait so often
            assert step > 5
            return


async def _close_cancelled_at(step: int, host: Any) -> None:
    # A task of Python 3.12 and later takes no coroutine that is a generator.
    await _cancelled_at(step, host.close())


@types.coroutine
def _cancelled_at(step: int, work: Coroutine[Any, Any, None]) -> Generator[Any, None, None]:
    """Do the work, but be cancelled where it waits for something, the so manieth time."""
    task = asyncio.current_task()
    assert task is not None
    waits = work.__await__()
    go_on: Callable[[], Any] = partial(next, waits)
    for number in count(1):
        try:
            waits_for = go_on()
        except StopIteration:
            return
        if number == step:
            task.cancel()
        try:
            yield waits_for
            go_on = partial(next, waits)
        except asyncio.CancelledError as exc:
            go_on = partial(waits.throw, exc)


async def test_events_wait_for_a_host_that_is_cut_off_for_a_while(
    fresh: LocalRuntime, make_host: Any, make_wire: Any
) -> None:
    ns = Host()
    async with make_wire(fresh) as wire, make_host(wire.url, fresh.token, ns) as host:
        await host.events.ready("test")
        async with make_host(fresh.url, fresh.token) as direct:
            wire.broken = True
            await wire.cut()
            await direct.remote(plugin.emit_numbers, "event", 150)
            asking = asyncio.create_task(direct.remote(plugin.request, "double", 4))
            await until(lambda: wire.refused > 12)  # it has given up, and tries again
            assert ns.events == []
            wire.broken = False
            await until(lambda: len(ns.events) == 150)
            assert ns.events == list(range(150))
            assert await asking == 8


async def test_a_reply_arrives_over_the_connection_after_the_one_that_was_cut(
    fresh: LocalRuntime, make_host: Any, make_wire: Any
) -> None:
    ns = Host()
    async with make_wire(fresh) as wire, make_host(wire.url, fresh.token, ns) as host:
        await host.events.ready("test")
        async with make_host(fresh.url, fresh.token) as direct:
            asking = asyncio.create_task(direct.remote(plugin.request, "slow", 4))
            await asyncio.wait_for(ns.came.wait(), 20)
            await wire.cut()
            ns.waits.set()
            assert await asking == 4


async def test_a_host_that_says_good_bye_fails_its_requests_at_once(
    fresh: LocalRuntime, make_host: Any
) -> None:
    async with make_host(fresh.url, fresh.token) as direct:
        ns = Host()
        async with make_host(fresh.url, fresh.token, ns) as host:
            await host.events.ready("test")
            asking = asyncio.create_task(direct.remote(plugin.failing, "slow", 4))
            await asyncio.wait_for(ns.came.wait(), 20)
        kind, text, _, seconds = await asking
        assert (kind, seconds < 5) == ("HostGoneError", True)
        assert text == "the host went away without a reply"


_HOST = """
import asyncio, sys
from agentix import AsyncClientNamespace, RuntimeClient

class Host(AsyncClientNamespace):
    async def on_slow(self, data):
        print("asked", flush=True)
        await asyncio.sleep(3600)

async def main():
    client = RuntimeClient(sys.argv[1], token=sys.argv[2])
    client.register_namespace(Host("/plugin"))
    async with client:
        await client.health()
        from local_runtime import plugin
        await client.remote(plugin.request, "slow")

asyncio.run(main())
"""


async def test_a_killed_host_fails_its_requests_after_a_while(make_host: Any) -> None:
    with LocalRuntime(settings="absent=1.0") as runtime:
        async with make_host(runtime.url, runtime.token) as direct:
            process = subprocess.Popen(
                [python(), "-c", _HOST, runtime.url, runtime.token], stdout=subprocess.PIPE
            )
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == b"asked\n"
            asking = asyncio.create_task(direct.remote(plugin.failing, "slow", 4))
            assert await asyncio.to_thread(process.stdout.readline) == b"asked\n"
            process.kill()
            process.wait()
            process.stdout.close()
            kind, _, _, seconds = await asking
            assert (kind, seconds < 10) == ("HostGoneError", True)


async def test_a_worker_that_dies_fails_the_hosts_call_at_once(
    fresh: LocalRuntime, make_host: Any
) -> None:
    ns = Host()
    async with make_host(fresh.url, fresh.token, ns) as host:
        await host.remote(plugin.load)
        began = time.monotonic()
        with pytest.raises(RemoteSioError, match="the worker ended") as caught:
            await ns.call("die")
        assert (caught.value.type, time.monotonic() - began < 5) == ("WorkerExited", True)
        await host.remote(plugin.load)  # imports it in the next worker
        assert await ns.call("echo", 1) == 1


async def test_a_worker_that_dies_leaves_the_hosts_handler_and_the_next_one_alone(
    fresh: LocalRuntime, make_host: Any
) -> None:
    ns = Host()
    async with make_host(fresh.url, fresh.token, ns) as host:
        pid = await host.remote(plugin.load)
        asking = asyncio.create_task(host.remote(plugin.request, "slow", 1))
        await asyncio.wait_for(ns.came.wait(), 20)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(Exception, match=r"WorkerExited|killed"):
            await asking
        second = asyncio.create_task(host.remote(plugin.request, "slow", 2))
        ns.waits.set()
        assert await second == 2


async def test_a_killed_server_is_a_definite_error_within_seconds(make_host: Any) -> None:
    ns = Host()
    with LocalRuntime() as runtime:
        async with make_host(runtime.url, runtime.token, ns) as host:
            await host.remote(plugin.load)
            call = asyncio.create_task(ns.call("hang"))
            ask = asyncio.create_task(host.events.ask(_long_call()))
            await until(lambda: host.events._calls and host.events._asks)
            began = time.monotonic()
            runtime.process.kill()
            with pytest.raises(RuntimeUnreachable):
                await call
            with pytest.raises(Exception, match="closed"):
                await ask
            with pytest.raises(RuntimeUnreachable):
                await ns.emit("echo", 1)
            assert time.monotonic() - began < 6


def _long_call() -> bytes:
    pickled = arguments.dump((3600,), {})
    target = "local_runtime.far::asleep"
    call = Call("someone-1", target, "values", 0, 60_000, False, "", pickled.segments)
    return body_prefix(messages.dump(call)) + b"".join(pieces(pickled.stream, pickled.buffers))


async def test_a_first_connection_that_fails_is_an_error_at_once(
    fresh: LocalRuntime, make_host: Any
) -> None:
    ns = Host()
    async with make_host(fresh.url + "-not", fresh.token, ns) as host:
        began = time.monotonic()
        with pytest.raises(RuntimeUnreachable, match="No such file"):
            await host.events.ready("test")
        assert time.monotonic() - began < 2
    async with make_host(fresh.url, "x" * 40, ns := Host()) as host:
        with pytest.raises(RuntimeUnreachable, match="it wants another secret"):
            await host.events.ready("test")
        with pytest.raises(RuntimeUnreachable, match="it wants another secret"):
            await ns.call("echo")


async def test_after_being_forgotten_a_host_begins_anew(make_host: Any, make_wire: Any) -> None:
    ns = Host()
    with LocalRuntime(settings="absent=0.3") as runtime:
        async with make_wire(runtime) as wire, make_host(wire.url, runtime.token, ns) as host:
            await host.events.ready("test")
            async with make_host(runtime.url, runtime.token) as direct:
                await direct.remote(plugin.load)
                hanging = asyncio.create_task(ns.call("hang"))
                await ns.emit("note", 1)
                await until_async(direct, 1)
                wire.broken = True
                await wire.cut()
                kind, *_ = await direct.remote(plugin.failing, "double", 1)
                assert kind in ("HostGoneError", "NoHandlerError")  # now, or already
                wire.broken = False
                with pytest.raises(RuntimeUnreachable, match="forgotten"):
                    await hanging
                assert await ns.call("echo", 2) == 2
                assert await direct.remote(plugin.request, "double", 2) == 4


async def until_async(host: Any, count: int) -> None:
    async with asyncio.timeout(20):
        while len(await host.remote(plugin.noted)) < count:
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [60])
async def test_a_busy_host_keeps_its_connection(
    fresh: LocalRuntime, make_host: Any, seconds: int
) -> None:
    ns = Host()
    async with make_host(fresh.url, fresh.token, ns, timeout=200) as host:
        asking = asyncio.create_task(host.remote(plugin.request, "double", 1))
        await host.events.ready("test")
        link = host.events._uplink.link
        time.sleep(seconds)
        assert await asking == 2
        assert await host.remote(plugin.request, "double", 2) == 4
        assert host.events._uplink.link is link
        assert await host.remote(far.anoop, 1) == 1


async def test_a_host_that_does_not_read_slows_the_sandbox_down_and_loses_nothing(
    fresh: LocalRuntime, make_host: Any
) -> None:
    code = [python(), "-c", _SLOW_HOST, fresh.url, fresh.token]
    with subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"ready\n"
        async with make_host(fresh.url, fresh.token) as direct:
            process.send_signal(signal.SIGSTOP)
            emitting = asyncio.create_task(direct.remote(plugin.emit_blobs, "blob", 400, 1 << 20))
            await eventually_async(
                still(lambda: _memory(fresh.process.pid), 2), "the server takes no more"
            )
            assert not emitting.done()
            assert _memory(fresh.process.pid) < 450 << 20
            process.send_signal(signal.SIGCONT)
            await asyncio.wait_for(emitting, 60)
        assert await asyncio.to_thread(process.stdout.readline) == b"400 in order\n"
        process.stdin.close()


_SLOW_HOST = """
import asyncio, sys
from agentix import AsyncClientNamespace, RuntimeClient
from local_runtime import far

class Host(AsyncClientNamespace):
    count = 0
    async def on_blob(self, data):
        assert data[0] == self.count, (data[0], self.count)
        self.count += 1
        if self.count == 400:
            print("400 in order", flush=True)

async def main():
    client = RuntimeClient(sys.argv[1], token=sys.argv[2])
    client.register_namespace(Host("/plugin"))
    async with client:
        await client.remote(far.anoop)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


async def test_the_server_loads_nothing_of_it_before_it_is_needed(
    fresh: LocalRuntime, make_host: Any
) -> None:
    async with make_host(fresh.url, fresh.token) as host:
        await host.remote(far.anoop)
    assert "multidict" not in Path(f"/proc/{fresh.process.pid}/maps").read_text()
