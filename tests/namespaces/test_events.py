"""Events and requests between a sandbox's namespace and its host's."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from local_runtime import far, plugin

from agentix.errors import RemoteSioError
from agentix.sio import AsyncClientNamespace, request_handler

if TYPE_CHECKING:
    from local_runtime import LocalRuntime


class HostError(Exception):
    """What a handler of the host raises."""

    def __init__(self, text: str, status_code: Any) -> None:
        super().__init__(text)
        self.status_code = status_code


class Host(AsyncClientNamespace):
    """The host's half of the plugin."""

    def __init__(self) -> None:
        super().__init__("/plugin")
        self.events: list[Any] = []
        self.connected = 0
        self.reasons: list[str] = []
        self.came = asyncio.Event()
        self.waits = asyncio.Event()
        self.active = 0

    def on_connect(self) -> None:
        self.connected += 1

    async def on_disconnect(self, reason: str) -> None:
        self.reasons.append(reason)

    async def on_event(self, data: Any) -> None:
        self.events.append(data)
        self.came.set()

    def on_sync_event(self, data: Any) -> None:
        self.events.append(data)

    async def on_slow_event(self, data: Any) -> None:
        self.events.append(data)
        await self.waits.wait()

    async def on_double(self, data: Any) -> Any:
        return data * 2

    @request_handler("triple")
    async def three_times(self, data: Any) -> Any:
        return data * 3

    @request_handler("sync")
    def synchronous(self, data: Any) -> Any:
        return [data]

    @request_handler("fail")
    async def fail(self, data: Any) -> Any:
        raise HostError(*data)

    @request_handler("unplain")
    async def unplain(self, data: Any) -> Any:
        return {1: object()}

    @request_handler("slow")
    async def slow(self, data: Any) -> Any:
        self.active += 1
        self.came.set()
        try:
            await self.waits.wait()
        finally:
            self.active -= 1
        return data


async def until(true: Any, what: str) -> None:
    """Wait for something, for a bounded time."""
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)
    assert true(), what


async def test_a_request_is_answered_by_the_hosts_handler(
    shared: LocalRuntime, make_host: Any
) -> None:
    async with make_host(shared.url, shared.token, Host()) as host:
        assert await host.remote(plugin.request, "double", 21) == 42
        assert await host.remote(plugin.request, "triple", "ab") == "ababab"
        assert await host.remote(plugin.request, "sync", {"a": [1, None, 2.5, b"x"]}) == [
            {"a": [1, None, 2.5, b"x"]}
        ]
        assert await host.remote(plugin.request_in_thread, "double", 4) == 8


async def test_the_host_has_what_the_sandboxs_handler_returns(
    shared: LocalRuntime, make_host: Any
) -> None:
    ns = Host()
    async with make_host(shared.url, shared.token, ns) as host:
        await host.remote(plugin.load)
        assert await ns.call("echo", {"x": [1, 2]}) == {"x": [1, 2]}
        assert await ns.call("echo") is None
        assert await ns.call("bare") == "without data"
        assert await ns.call("echo_in_thread", "y") == [False, "y"]
        got = asyncio.get_running_loop().create_future()
        await ns.emit("echo", 5, callback=got.set_result)
        assert await asyncio.wait_for(got, 10) == 5


async def test_a_status_code_is_kept_and_what_is_none_is_not(
    shared: LocalRuntime, make_host: Any
) -> None:
    ns = Host()
    async with make_host(shared.url, shared.token, ns) as host:
        status: Any
        for status in (429, 400, 503):
            kind, text, code, _ = await host.remote(plugin.failing, "fail", ["so", status])
            assert (kind.rpartition(".")[2], text, code) == ("HostError", "so", status)
            with pytest.raises(RemoteSioError) as caught:
                await ns.call("fail", ["so", status])
            assert caught.value.type.endswith("StatusError")
            assert (caught.value.message, caught.value.status_code) == ("so", status)
        for status in ("429", None, True, 4.5, -1, 1000, [429]):
            assert (await host.remote(plugin.failing, "fail", ["so", status]))[2] is None
            with pytest.raises(RemoteSioError) as caught:
                await ns.call("fail_in_thread", ["so", status])
            assert caught.value.status_code is None


async def test_a_request_without_a_handler_fails_at_once(
    shared: LocalRuntime, make_host: Any
) -> None:
    ns = Host()
    async with make_host(shared.url, shared.token, ns) as host:
        kind, text, _, seconds = await host.remote(plugin.failing, "no_such")
        assert (kind, seconds < 2) == ("NoHandlerError", True)
        assert "no_such" in text
        with pytest.raises(RemoteSioError, match="no on_no_such"):
            await ns.call("no_such")
    async with make_host(shared.url, shared.token) as other:
        kind, text, _, seconds = await other.remote(plugin.failing, "double")
        assert (kind, seconds < 2) == ("NoHandlerError", True)
        assert "no host has registered /plugin" in text


async def test_a_namespace_that_the_sandbox_has_not_imported_is_a_definite_error(
    shared: LocalRuntime, make_host: Any
) -> None:
    class Unknown(AsyncClientNamespace):
        pass

    ns = Unknown("/unknown")
    async with make_host(shared.url, shared.token, ns):
        with pytest.raises(RemoteSioError, match="import its module"):
            await ns.call("echo", 1)


async def test_values_that_are_not_plain_are_refused_on_either_side(
    shared: LocalRuntime, make_host: Any
) -> None:
    ns = Host()
    async with make_host(shared.url, shared.token, ns) as host:
        await host.remote(plugin.load)
        for value in (object(), {1: 2}, {"a": {1}}, 1 << 70, [1j]):
            with pytest.raises(TypeError):
                await ns.emit("note", value)
        with pytest.raises(RemoteSioError, match="cannot be sent"):
            await ns.call("unplain")
        kind, text, _, _ = await host.remote(plugin.failing, "unplain")
        assert kind == "TypeError"
        assert "cannot be sent" in text
        assert await ns.call("echo", (1, (2,))) == [1, [2]]


@pytest.mark.parametrize("size", [999_999, 1_000_001, (4 << 20) + 1, 20_000_000, (64 << 20) - 16])
async def test_large_data_pass_both_ways(shared: LocalRuntime, make_host: Any, size: int) -> None:
    ns = Host()
    async with make_host(shared.url, shared.token, ns) as host:
        await host.remote(plugin.load)
        data = bytes(range(256)) * (size // 256 + 1)
        assert await ns.call("echo", data[:size]) == data[:size]
        assert await host.remote(plugin.length_of, "double", size // 2) == size // 2 * 2


async def test_more_data_than_may_be_sent_are_refused_before_that(
    shared: LocalRuntime, make_host: Any
) -> None:
    ns = Host()
    async with make_host(shared.url, shared.token, ns) as host:
        with pytest.raises(TypeError, match="67,108,864"):
            await ns.call("echo", bytes((64 << 20) + 1))
        kind, text, _, _ = await host.remote(plugin.failing_with_bytes, "double", (64 << 20) + 1)
        assert kind == "UnencodableError"
        assert "67,108,864" in text
        kind, text, _, _ = await host.remote(plugin.failing, "double", "x" * (40 << 20))
        assert (kind, "67,108,864" in text) == ("TypeError", True)
        assert await ns.call("echo", 1) == 1


async def test_events_of_one_namespace_begin_in_order(shared: LocalRuntime, make_host: Any) -> None:
    ns = Host()
    async with make_host(shared.url, shared.token, ns) as host:
        await host.remote(plugin.emit_numbers, "event", 3000)
        assert ns.events == list(range(3000)), "they have begun before the call's result is there"
        ns.events.clear()
        await host.remote(plugin.emit_from_threads, "sync_event", 8, 100)
        await until(lambda: len(ns.events) == 800, "all events come")
        for thread in range(8):
            assert [n for t, n in ns.events if t == thread] == list(range(100))


async def test_the_sandboxs_handlers_begin_in_order(fresh: LocalRuntime, make_host: Any) -> None:
    ns = Host()
    async with make_host(fresh.url, fresh.token, ns) as host:
        await host.remote(plugin.load)
        for number in range(500):
            await ns.emit("begin", number)
            await ns.emit("note", number)
        await until_async(host, plugin.begun, 500)
        assert await host.remote(plugin.begun) == list(range(500))
        assert await host.remote(plugin.noted) == list(range(500))


async def until_async(host: Any, fn: Any, count: int) -> None:
    async with asyncio.timeout(20):
        while len(await host.remote(fn)) < count:
            await asyncio.sleep(0.01)


async def test_a_slow_handler_delays_nobody(shared: LocalRuntime, make_host: Any) -> None:
    ns = Host()
    async with make_host(shared.url, shared.token, ns) as host:
        slow = asyncio.create_task(host.remote(plugin.request, "slow", 1))
        await host.remote(plugin.emit, "slow_event", 2)
        await asyncio.wait_for(ns.came.wait(), 20)
        began = time.monotonic()
        assert await host.remote(far.anoop, 3) == 3
        assert await host.remote(plugin.request, "double", 4) == 8
        assert await ns.call("echo", 5) == 5
        assert time.monotonic() - began < 5
        ns.waits.set()
        assert await slow == 1


async def test_two_hundred_requests_at_once(shared: LocalRuntime, make_host: Any) -> None:
    ns = Host()
    async with make_host(shared.url, shared.token, ns) as host:
        task = asyncio.create_task(host.remote(plugin.requests, "slow", 200))
        await until(lambda: ns.active == 200, "all handlers are at work at once")
        ns.waits.set()
        assert await task == list(range(200))
        answers = await asyncio.gather(*(ns.call("echo", n) for n in range(200)))
        assert answers == list(range(200))


async def test_a_request_has_a_timeout_on_either_side(shared: LocalRuntime, make_host: Any) -> None:
    import socketio

    ns = Host()
    async with make_host(shared.url, shared.token, ns) as host:
        kind, text, _, seconds = await host.remote(plugin.failing, "slow", 1, timeout=0.2)
        assert (kind, seconds < 3) == ("TimeoutError", True)
        assert text == "no reply from the host to 'slow' of /plugin within 0.2 s"
        with pytest.raises(TimeoutError, match=r"within 0\.2 s") as caught:
            await ns.call("hang", timeout=0.2)
        assert isinstance(caught.value, socketio.exceptions.TimeoutError)


async def test_handlers_of_the_connection_are_called(shared: LocalRuntime, make_host: Any) -> None:
    ns = Host()
    async with make_host(shared.url, shared.token, ns) as host:
        await host.remote(far.anoop)
        await until(lambda: ns.connected == 1, "on_connect is called")
    assert ns.reasons == ["client disconnect"]


async def test_a_mistyped_event_is_told_of_once_on_the_host(
    shared: LocalRuntime, make_host: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ns = Host()
    async with make_host(shared.url, shared.token, ns) as host:
        await host.remote(plugin.emit_numbers, "evnet", 5)
        await host.remote(plugin.request, "double", 1)
    told = [record.getMessage() for record in caplog.records if "evnet" in record.getMessage()]
    assert len(told) == 1
    assert "no handler" in told[0]


async def test_a_mistyped_event_is_told_of_once_from_the_sandbox(
    fresh: LocalRuntime, make_host: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ns = Host()
    async with make_host(fresh.url, fresh.token, ns) as host:
        await host.remote(plugin.load)
        for _ in range(5):
            await ns.emit("evnet", 1)
        await ns.emit("fail", ["said", 1])
        assert await ns.call("echo", 1) == 1
        await host.remote(plugin.load)
    told = [record.getMessage() for record in caplog.records if record.name == "agentix.sio"]
    assert len([text for text in told if "has no on_evnet" in text]) == 1
    assert len([text for text in told if "the handler of 'fail' of /plugin failed" in text]) == 1


async def test_a_handler_that_raises_is_logged_and_harms_no_other(
    shared: LocalRuntime, make_host: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ns = Host()
    async with make_host(shared.url, shared.token, ns) as host:
        await host.remote(plugin.emit, "fail", ["said", 1])
        assert await host.remote(plugin.request, "double", 1) == 2
    assert any(record.exc_info and "HostError" in str(record.exc_text) for record in caplog.records)


async def test_two_hosts_have_the_events_and_the_last_one_the_requests(
    shared: LocalRuntime, make_host: Any
) -> None:
    first, second = Host(), Host()
    second.on_double = first.on_triple  # type: ignore[attr-defined,method-assign]
    async with (
        make_host(shared.url, shared.token, first) as one,
        make_host(shared.url, shared.token, second) as two,
    ):
        await one.remote(far.anoop)
        await two.remote(far.anoop)
        assert await one.remote(plugin.request, "double", 1) == 3
        await one.remote(plugin.emit, "event", 1)
        await until(lambda: first.events == second.events == [1], "both have it")


async def test_a_handler_that_is_cancelled_is_a_reply_too(
    shared: LocalRuntime, make_host: Any
) -> None:
    class Cancelled(Host):
        async def on_double(self, data: Any) -> Any:
            raise asyncio.CancelledError

    async with make_host(shared.url, shared.token, Cancelled()) as host:
        kind, _, status, seconds = await host.remote(plugin.failing, "double", 1)
        assert (kind, status, seconds < 10) == ("asyncio.exceptions.CancelledError", None, True)
