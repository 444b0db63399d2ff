"""Tell this process's processors of the traces and spans of a sandbox."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, TypeVar

from agentix.utils.trace import processors
from agentix.utils.trace.model import Span, SpanEvent, Trace
from agentix.wire import records

T = TypeVar("T", Trace, Span)

_MOST_OPEN: Final = 10_000
_MOST_TEXT: Final = 32 << 20
"""Traces and spans without an end that are remembered, and the text in them: a worker may die, or
lie."""


class TraceReplay:
    """Makes of records what processors expect: one object from its start to its end."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[Trace | Span, int]] = OrderedDict()
        self._text = 0

    def deliver(self, entry: records.TraceEvent | records.SpanEvent) -> None:
        """Tell of one record."""
        if not processors.get_processors():
            processors.nobody_listens()
        try:
            if isinstance(entry, records.SpanEvent):
                self._span(entry)
            else:
                self._trace(entry)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # test runners' own, or a cancellation that is nobody's here
            processors.complain(self, "a trace processor raised at a record of a sandbox")

    def _trace(self, entry: records.TraceEvent) -> None:
        found = self._take(entry.trace_id, Trace) or Trace(entry.name, trace_id=entry.trace_id)
        found.name, found.metadata = entry.name, dict(entry.metadata)
        found.start_ns, found.end_ns = entry.start, entry.end
        if entry.phase == "start":
            self._keep(entry.trace_id, found, _weight(entry.metadata))
            processors.trace_started(found)
        else:
            processors.trace_ended(found)

    def _span(self, entry: records.SpanEvent) -> None:
        found = self._take(entry.span_id, Span) or Span(entry.name, span_id=entry.span_id)
        found.name, found.attrs = entry.name, dict(entry.attributes)
        found.trace_id, found.parent_id = entry.trace_id, entry.parent_id
        found.start_ns, found.end_ns = entry.start, entry.end
        found.status, found.status_message = entry.status, entry.status_message
        found.events = [SpanEvent(*event) for event in entry.events]  # type: ignore[arg-type]
        if entry.phase == "start":
            self._keep(entry.span_id, found, _weight([entry.attributes, entry.events]))
            processors.span_started(found)
        else:
            processors.span_ended(found)

    def _take(self, key: str, kind: type[T]) -> T | None:
        found, weight = self._open.pop(key, (None, 0))
        self._text -= weight
        return found if isinstance(found, kind) else None

    def _keep(self, key: str, value: Trace | Span, weight: int) -> None:
        self._open[key] = (value, weight)
        self._text += weight
        while len(self._open) > _MOST_OPEN or self._text > _MOST_TEXT:
            self._text -= self._open.popitem(last=False)[1][1]


def _weight(value: Any) -> int:
    """Estimate how much memory plain data takes."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return 50 + sum(len(key) + _weight(item) for key, item in value.items())
    return 50 + sum(map(_weight, value)) if isinstance(value, list) else 8
