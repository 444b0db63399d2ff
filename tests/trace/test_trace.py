"""Traces and spans, as one process sees them."""

from __future__ import annotations

import asyncio
import contextvars
import io
import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest

from agentix.utils import trace
from agentix.utils.trace import processors
from agentix.utils.trace.replay import TraceReplay
from agentix.wire import records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Heard(trace.Processor):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def on_trace_start(self, t: trace.Trace) -> None:
        self.events.append(("trace start", t))

    def on_trace_end(self, t: trace.Trace) -> None:
        self.events.append(("trace end", t))

    def on_span_start(self, s: trace.Span) -> None:
        self.events.append(("span start", s))

    def on_span_end(self, s: trace.Span) -> None:
        self.events.append(("span end", s))

    def names(self) -> list[str]:
        """Tell it in words."""
        return [f"{what} {subject.name}" for what, subject in self.events]


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Give the only processor."""
    before = trace.get_processors()
    processor = Heard()
    trace.set_processors([processor])
    yield processor
    trace.set_processors(before)


def test_spans_nest_in_the_trace_in_which_they_are_opened(heard: Heard) -> None:
    with trace.trace("rollout", task=7) as whole:
        with trace.span("outer") as outer, trace.span("inner", n=1) as inner:
            assert trace.current_span() is inner
        with trace.span("next") as following:
            pass
    assert re.fullmatch("[0-9a-f]{32}", whole.trace_id)
    assert re.fullmatch("[0-9a-f]{16}", outer.span_id)
    assert {outer.trace_id, inner.trace_id, following.trace_id} == {whole.trace_id}
    assert (outer.parent_id, inner.parent_id, following.parent_id) == ("", outer.span_id, "")
    assert whole.metadata == {"task": 7}
    assert inner.attrs == {"n": 1}
    assert whole.start_ns <= outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns
    assert heard.names() == [
        "trace start rollout",
        "span start outer",
        "span start inner",
        "span end inner",
        "span end outer",
        "span start next",
        "span end next",
        "trace end rollout",
    ]
    assert trace.current_span() is None


def test_times_are_given_in_iso_too() -> None:
    span = trace.Span("s", start_ns=1_700_000_000_123_456_789)
    assert span.start_iso == "2023-11-14T22:13:20.123456+00:00"
    assert span.end_iso == ""


def test_a_parent_can_be_given(heard: Heard) -> None:
    with trace.span("a") as a:
        pass
    with trace.span("other"), trace.span("b", parent=a) as b:
        pass
    assert (b.trace_id, b.parent_id) == (a.trace_id, a.span_id)


def test_an_exception_is_the_spans_error(heard: Heard) -> None:
    with pytest.raises(ValueError, match="no"), trace.span("s") as span:
        raise ValueError("no")
    assert (span.status, span.status_message) == ("error", "ValueError: no")
    (event,) = span.events
    assert event.name == "exception"
    assert event.attrs["exception.type"] == "ValueError"
    assert "raise ValueError" in event.attrs["exception.stacktrace"]


def test_what_is_said_of_a_span_is_kept(heard: Heard) -> None:
    with trace.span("s") as span:
        span.set_attribute("a", 1)
        span.set_attributes({"b.c": 2}, d=3)
        span.add_event("token", n=5)
        span.set_status("ok")
    assert span.attrs == {"a": 1, "b.c": 2, "d": 3}
    assert (span.events[0].name, span.events[0].attrs) == ("token", {"n": 5})
    assert span.status == "ok"
    with pytest.raises(ValueError, match="unset"):
        span.set_status("fine")  # type: ignore[arg-type]


def test_a_processor_that_raises_harms_nobody(
    heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    class Bad(trace.Processor):
        def on_span_end(self, s: trace.Span) -> None:
            raise RuntimeError("bad")

    trace.set_processors([Bad(), heard])
    for _ in range(3):
        with trace.span("s"):
            pass
    assert heard.names().count("span end s") == 3
    assert len([record for record in caplog.records if record.name == "agentix.trace"]) == 1


def test_disabled_means_that_nobody_hears(heard: Heard) -> None:
    trace.set_tracing_disabled(True)
    try:
        with trace.trace("t"), trace.span("s"):
            pass
    finally:
        trace.set_tracing_disabled(False)
    assert heard.events == []


def test_a_span_that_ends_unheard_says_so_once(
    heard: Heard, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "_unheard", True)
    trace.remove_processor(heard)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with trace.span("s"):
                pass
    assert [record.message for record in caplog.records if "add_processor" in record.message]
    assert len(caplog.records) == 1


def test_lines_of_json_hold_everything_whole(tmp_path: Path, heard: Heard) -> None:
    path = tmp_path / "out.jsonl"
    prompt = "é" * 200_000
    with trace.collect(path), trace.trace("t"), trace.span("s", prompt=prompt, odd=object()) as s:
        s.add_event("e", n=1)
    with trace.span("later"):
        pass
    span, whole = map(json.loads, path.read_text().splitlines())
    assert whole["kind"] == "trace"
    assert span["attrs"]["prompt"] == prompt
    assert span["attrs"]["odd"].startswith("<object object")
    assert span["trace_id"] == whole["trace_id"]
    assert span["events"][0]["attrs"] == {"n": 1}
    assert trace.get_processors() == [heard]


def test_numbers_that_json_does_not_have_are_texts_in_it(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    odd: dict[str, Any] = {
        "loss": [float("nan"), 1.5],
        "best": {"low": float("-inf"), "high": float("inf")},
    }
    with trace.collect(path), trace.trace("t", **odd), trace.span("s", **odd) as s:
        s.add_event("e", odd)
    lines = path.read_text().splitlines()
    span, whole = (json.loads(line, parse_constant=pytest.fail) for line in lines)
    told = {"loss": ["NaN", 1.5], "best": {"low": "-Infinity", "high": "Infinity"}}
    assert (span["attrs"], span["events"][0]["attrs"], whole["metadata"]) == (told, told, told)


def test_the_console_tells_a_line_each() -> None:
    out = io.StringIO()
    before = trace.get_processors()
    trace.set_processors([trace.ConsoleProcessor(out)])
    try:
        with pytest.raises(ValueError, match="no"), trace.span("step", n=1):
            raise ValueError("no")
    finally:
        trace.set_processors(before)
    assert re.match(r"span  step  [\d.]+ ms  error: ValueError: no  n=1\n", out.getvalue())


def test_shutdown_flushes_ends_and_removes(heard: Heard) -> None:
    calls = []

    class Batch(trace.Processor):
        def force_flush(self) -> None:
            calls.append("flush")

        def shutdown(self) -> None:
            calls.append("shutdown")

    trace.add_processor(Batch())
    trace.force_flush()
    trace.shutdown()
    assert calls == ["flush", "flush", "shutdown"]
    assert trace.get_processors() == []


async def test_tasks_have_parents_of_their_own(heard: Heard) -> None:
    async def step(name: str) -> trace.Span:
        with trace.span(name) as span:
            await asyncio.sleep(0)
            return span

    with trace.span("parent") as parent:
        one, two = await asyncio.gather(step("one"), step("two"))
    assert one.parent_id == two.parent_id == parent.span_id


def test_a_span_may_end_in_another_context(heard: Heard) -> None:
    span = trace.span("s")
    contextvars.copy_context().run(span.__enter__)
    span.__exit__(None, None, None)
    assert heard.names() == ["span start s", "span end s"]


def _sent(function: Any) -> list[Any]:
    """Run something as a sandbox does, and read what it sends."""
    sent: list[bytes] = []
    records.sink = sent.append
    try:
        contextvars.Context().run(function)
    finally:
        records.sink = None
    return [*records.load_all(b"".join(map(records.prefixed, sent)), len(sent))]


def test_what_a_sandbox_sends_is_replayed_as_it_was(heard: Heard) -> None:
    def inside() -> None:
        with trace.trace("t", m=[1, {"x": None}]), trace.span("s", text="a" * 300_000) as s:
            s.add_event("e", n=1)
            s.set_error("bad")

    entries = _sent(inside)
    replay = TraceReplay()
    there = heard.events[:]
    heard.events.clear()
    for entry in entries:
        replay.deliver(entry)
    assert [(what, subject) for what, subject in heard.events] == there
    starts = {id(subject) for what, subject in heard.events if "start" in what}
    assert starts == {id(subject) for what, subject in heard.events if "end" in what}


def test_a_sandbox_that_never_ends_its_spans_is_forgotten(heard: Heard) -> None:
    replay = TraceReplay()
    for number in range(30):
        entry = records.SpanEvent(
            *("start", "0" * 32, f"{number:016x}", "", "s", 1, 0, "unset", "", {}),
            events=[["e", 1, {"big": "x" * (4 << 20)}]],
        )
        replay.deliver(entry)
        heard.events.clear()
    assert len(replay._open) < 10


def test_what_a_sandbox_makes_up_is_written_harmlessly(tmp_path: Path) -> None:
    out, path = io.StringIO(), tmp_path / "t.jsonl"
    lines = trace.JsonlProcessor(path)
    event = records.SpanEvent(
        "end", "t", "s", "", "a\x1b[2J\nb\ud800", 1, 2, "error", "\x1b]0;", {"\x1b": "\x1b"}, []
    )
    before = trace.get_processors()
    trace.set_processors([trace.ConsoleProcessor(out), lines])
    try:
        TraceReplay().deliver(event)
    finally:
        trace.shutdown()
        trace.set_processors(before)
    assert out.getvalue().removesuffix("\n").isprintable()
    assert json.loads(path.read_text())["name"] == event.name
