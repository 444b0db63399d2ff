"""Tracing: what happened, when, in which step of what. Spans in a sandbox nest under the host's.

    with trace.trace("rollout", task=7):
        with trace.span("agent.step") as span:
            span.add_event("first_token")
            await sandbox.remote(solve)         # the spans that it opens are children of this one

Processors hear of it all, in the process where it happens and, for what happens in a sandbox, also
on the host. To export to OpenTelemetry or anywhere else, write one.
"""

from agentix.utils.trace.model import (
    Span,
    SpanEvent,
    Status,
    Trace,
    current_span,
    span,
    trace,
)
from agentix.utils.trace.processors import (
    ConsoleProcessor,
    JsonlProcessor,
    Processor,
    add_processor,
    collect,
    force_flush,
    get_processors,
    remove_processor,
    set_processors,
    set_tracing_disabled,
    shutdown,
)

__all__ = [
    "ConsoleProcessor",
    "JsonlProcessor",
    "Processor",
    "Span",
    "SpanEvent",
    "Status",
    "Trace",
    "add_processor",
    "collect",
    "current_span",
    "force_flush",
    "get_processors",
    "remove_processor",
    "set_processors",
    "set_tracing_disabled",
    "shutdown",
    "span",
    "trace",
]
