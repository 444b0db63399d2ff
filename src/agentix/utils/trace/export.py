"""Traces and spans on their way out of a sandbox, and as processors on the host are given them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from agentix.wire import records
from agentix.wire.records import Plain, SpanEvent, TraceEvent, as_plain

if TYPE_CHECKING:
    from agentix.utils.trace.model import Span, Trace

Phase = Literal["start", "end"]


def _mapping(values: dict[str, Any]) -> dict[str, Plain]:
    return cast("dict[str, Plain]", as_plain({**values}))


def export_trace(phase: Phase, t: Trace) -> bytes:
    """Encode what is known of a trace."""
    return records.dump(
        TraceEvent(phase, t.trace_id, f"{t.name}", t.start_ns, t.end_ns, _mapping(t.metadata))
    )


def export_span(phase: Phase, s: Span) -> bytes:
    """Encode what is known of a span."""
    events: list[list[Plain]] = [
        [f"{event.name}", event.time_ns, _mapping(event.attrs)] for event in [*s.events]
    ]
    return records.dump(
        SpanEvent(
            phase,
            s.trace_id,
            s.span_id,
            s.parent_id,
            f"{s.name}",
            s.start_ns,
            s.end_ns,
            s.status,
            f"{s.status_message}",
            _mapping(s.attrs),
            events,
        )
    )
