"""Traces and context across remote calls."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from local_runtime import LocalRuntime, far, traced
from local_runtime.proxy import Proxy

from agentix import RemoteCallError, context, trace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalRuntime]:
    """Give a runtime."""
    with LocalRuntime() as runtime:
        yield runtime


class Heard(trace.Processor):
    """Remembers spans and traces, and in which order they came."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended: dict[str, Any] = {}
        self.flushed = 0

    def on_trace_start(self, t: trace.Trace) -> None:
        self.started.append(t.name)

    def on_trace_end(self, t: trace.Trace) -> None:
        self.ended[t.name] = t

    def on_span_start(self, s: trace.Span) -> None:
        self.started.append(s.name)

    def on_span_end(self, s: trace.Span) -> None:
        assert s.name not in self.ended, "once is enough"
        self.ended[s.name] = s

    def force_flush(self) -> None:
        self.flushed += 1


@contextlib.contextmanager
def hearing() -> Iterator[Heard]:
    """Be the only processor."""
    before = trace.get_processors()
    processor = Heard()
    trace.set_processors([processor])
    try:
        yield processor
    finally:
        trace.set_processors(before)


@pytest.mark.parametrize(
    ("fn", "inner"),
    [(traced.asteps, ("one", "two")), (traced.steps, ("pooled", "threaded"))],
    ids=["async", "sync"],
)
async def test_spans_of_a_sandbox_nest_under_the_hosts(
    shared: LocalRuntime, fn: Any, inner: tuple[str, str]
) -> None:
    with hearing() as heard:
        async with shared.client() as client:
            with trace.trace("rollout") as whole, trace.span("call") as call:
                await client.remote(fn)
                # No more waiting: they are here before the result.
                outer = heard.ended["outer"]
                assert {heard.ended[name].parent_id for name in inner} == {outer.span_id}
            assert outer.parent_id == call.span_id
            assert {span.trace_id for span in heard.ended.values()} == {whole.trace_id}
            assert call.start_ns <= outer.start_ns <= outer.end_ns <= call.end_ns
            assert heard.started[:3] == ["rollout", "call", "outer"]
    if fn is traced.asteps:
        assert outer.attrs == {"prompt": "p" * 200_000}
        assert [(event.name, event.attrs) for event in outer.events] == [("token", {"n": 1})]


async def test_a_trace_without_a_span_is_followed_too(shared: LocalRuntime) -> None:
    with hearing() as heard:
        async with shared.client() as client:
            with trace.trace("rollout") as whole:
                await client.remote(traced.steps)
    assert heard.ended["outer"].trace_id == whole.trace_id
    assert heard.ended["outer"].parent_id == ""


async def test_a_sandbox_may_make_a_trace_of_its_own(shared: LocalRuntime) -> None:
    with hearing() as heard:
        async with shared.client() as client:
            await client.remote(traced.whole_trace)
    assert heard.ended["inside"].metadata == {"n": 1}
    assert heard.ended["step"].trace_id == heard.ended["inside"].trace_id


async def test_a_failing_span_tells_why(shared: LocalRuntime) -> None:
    with hearing() as heard:
        async with shared.client() as client:
            with pytest.raises(RemoteCallError):
                await client.remote(traced.fail_in_span)
    span = heard.ended["failing"]
    assert (span.status, span.status_message) == ("error", "ValueError: no")
    assert "in fail_in_span" in span.events[0].attrs["exception.stacktrace"]


async def test_closing_a_client_flushes_the_processors(shared: LocalRuntime) -> None:
    with hearing() as heard:
        async with shared.client() as client:
            await client.remote(far.anoop, 1)
        assert heard.flushed


async def test_spans_are_neither_lost_nor_told_twice_when_the_connection_breaks(
    shared: LocalRuntime,
) -> None:
    with hearing() as heard:
        async with Proxy(shared) as proxy, proxy.client() as client:
            for number in range(10):
                call = asyncio.ensure_future(client.remote(traced.asteps))
                await asyncio.sleep(0.002 * number)
                proxy.cut()
                await call
                assert {*heard.ended} == {"outer", "one", "two"}
                heard.ended.clear()


@pytest.mark.parametrize("fn", [traced.seen, traced.aseen], ids=["thread", "loop"])
async def test_context_follows_a_call_and_ends_with_it(shared: LocalRuntime, fn: Any) -> None:
    async with shared.client() as client:
        token = traced.tenant.set("acme")
        with context.scope(experiment=7, more=[1]):
            there = await client.remote(fn)
        traced.tenant.reset(token)
        assert there == ("acme", 7, {"experiment": 7, "more": [1]})
        assert await client.remote(fn) == ("nobody", None, {})
        for changing in (traced.change, traced.achange):
            await client.remote(changing)
            assert await client.remote(fn) == ("nobody", None, {})


async def test_calls_at_once_have_contexts_of_their_own(shared: LocalRuntime) -> None:
    async with shared.client() as client:

        async def one(number: int) -> None:
            traced.tenant.set(f"tenant {number}")
            fn: Any = traced.seen if number % 2 else traced.aseen
            assert (await client.remote(fn))[0] == f"tenant {number}"

        await asyncio.gather(*map(one, range(40)))


@pytest.mark.parametrize("fn", [traced.each, traced.aeach], ids=["sync", "async"])
async def test_context_follows_a_stream_through_all_its_items(
    shared: LocalRuntime, fn: Any
) -> None:
    async def items() -> AsyncIterator[str]:
        traced.tenant.set("acme")
        async for item in client.remote(fn):
            yield item

    async with shared.client() as client:
        assert [item async for item in items()] == ["acme"] * 3


async def test_what_a_processor_raises_ends_nothing(shared: LocalRuntime) -> None:
    class Raising(Heard):
        def on_span_end(self, s: trace.Span) -> None:
            super().on_span_end(s)
            raise asyncio.CancelledError

    before = trace.get_processors()
    processor = Raising()
    trace.set_processors([processor])
    try:
        async with shared.client() as client:
            for _ in range(2):
                processor.ended.clear()
                await client.remote(traced.asteps)
                assert processor.ended
    finally:
        trace.set_processors(before)
