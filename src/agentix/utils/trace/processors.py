"""Who hears of traces and spans: processors, called one after the other as things happen."""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from agentix.text import plain
from agentix.utils.trace.export import export_span, export_trace
from agentix.wire import records

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from agentix.utils.trace.model import Span, Trace
    from agentix.wire.records import Plain

_log: Final = logging.getLogger("agentix.trace")


class Processor:
    """Hears of every trace and span; override what you need.

    Called in the thread or task in which it happens, so be quick. What it raises is logged, once,
    and harms nobody else.
    """

    def on_trace_start(self, t: Trace) -> None:
        """Hear that a trace began."""

    def on_trace_end(self, t: Trace) -> None:
        """Hear that a trace ended."""

    def on_span_start(self, s: Span) -> None:
        """Hear that a span began."""

    def on_span_end(self, s: Span) -> None:
        """Hear that a span ended."""

    def force_flush(self) -> None:
        """Write out what is held back."""

    def shutdown(self) -> None:
        """End: nothing more will come."""


class JsonlProcessor(Processor):
    """Appends each trace and span that ended to a file, as one line of JSON."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._lock = threading.Lock()
        # By lines: a process that is killed leaves whole ones. A surrogate, which no UTF-8 can
        # hold, becomes the escape that JSON has for it.
        self._file: TextIO | None = Path(path).open(  # noqa: SIM115
            "a", 1, encoding="utf-8", errors="backslashreplace"
        )

    def on_trace_end(self, t: Trace) -> None:
        """Write the trace."""
        self._write(
            {
                "kind": "trace",
                "name": t.name,
                "trace_id": t.trace_id,
                "metadata": t.metadata,
                "start_ns": t.start_ns,
                "end_ns": t.end_ns,
                "start": t.start_iso,
                "end": t.end_iso,
            }
        )

    def on_span_end(self, s: Span) -> None:
        """Write the span."""
        self._write(
            {
                "kind": "span",
                "name": s.name,
                "trace_id": s.trace_id,
                "span_id": s.span_id,
                "parent_id": s.parent_id,
                "attrs": s.attrs,
                "events": [
                    {"name": e.name, "time_ns": e.time_ns, "time": e.time_iso, "attrs": e.attrs}
                    for e in s.events
                ],
                "status": s.status,
                "status_message": s.status_message,
                "start_ns": s.start_ns,
                "end_ns": s.end_ns,
                "start": s.start_iso,
                "end": s.end_iso,
            }
        )

    def _write(self, line: dict[str, Any]) -> None:
        told = records.as_plain(line)
        try:
            text = json.dumps(told, ensure_ascii=False, allow_nan=False)
        except ValueError:
            text = json.dumps(_finite(told), ensure_ascii=False, allow_nan=False)
        with self._lock:
            if self._file is not None:
                self._file.write(text + "\n")

    def force_flush(self) -> None:
        """Write out what is held back."""
        with self._lock:
            if self._file is not None:
                self._file.flush()

    def shutdown(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


def _finite(value: Plain) -> Plain:
    """Give the numbers that JSON does not have as texts, by the names that it is read with."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value


class ConsoleProcessor(Processor):
    """Prints a line for each trace and span that ended."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file

    def on_trace_end(self, t: Trace) -> None:
        """Print the trace."""
        self._print(f"trace {t.name}  {_took(t.start_ns, t.end_ns)}  {t.trace_id}", t.metadata)

    def on_span_end(self, s: Span) -> None:
        """Print the span."""
        status = "" if s.status == "unset" else f"  {s.status}"
        why = f": {s.status_message.splitlines()[0]}" if s.status_message else ""
        self._print(f"span  {s.name}  {_took(s.start_ns, s.end_ns)}{status}{why}", s.attrs)

    def _print(self, what: str, more: dict[str, Any]) -> None:
        told = "".join(f"  {key}={records.as_plain(value)!r:.200}" for key, value in more.items())
        print(plain(what + told, None), file=self._file or sys.stderr)

    def force_flush(self) -> None:
        """Flush the stream."""
        (self._file or sys.stderr).flush()


def _took(start: int, end: int) -> str:
    return f"{(end - start) / 1e6:.1f} ms"


# Replaced as a whole, so that whoever goes through it needs no lock.
_processors: tuple[Processor, ...] = ()
_disabled = False
_lock = threading.Lock()
_complained: dict[int, object] = {}
_unheard = True


def add_processor(processor: Processor) -> None:
    """Have a processor hear of everything from now on; adding it twice changes nothing."""
    global _processors
    with _lock:
        if processor not in _processors:
            _processors = (*_processors, processor)


def remove_processor(processor: Processor) -> None:
    """Take a processor out; it is not shut down."""
    global _processors
    with _lock:
        _processors = tuple(one for one in _processors if one is not processor)


def set_processors(processors: Iterable[Processor]) -> None:
    """Have these processors and no others."""
    global _processors
    with _lock:
        _processors = tuple(processors)


def get_processors() -> list[Processor]:
    """Return the processors."""
    return [*_processors]


def set_tracing_disabled(disabled: bool) -> None:
    """Have nobody hear of anything, or everybody again."""
    global _disabled
    _disabled = disabled


def force_flush() -> None:
    """Have every processor write out what it holds back."""
    for processor in _processors:
        _call(processor, processor.force_flush)


def shutdown() -> None:
    """Flush, then end every processor and take them all out."""
    global _processors
    force_flush()
    with _lock:
        ended, _processors = _processors, ()
    for processor in ended:
        _call(processor, processor.shutdown)


@contextmanager
def collect(path: str | os.PathLike[str]) -> Iterator[JsonlProcessor]:
    """Append what ends inside a ``with`` block to a file of JSON lines."""
    processor = JsonlProcessor(path)
    add_processor(processor)
    try:
        yield processor
    finally:
        remove_processor(processor)
        processor.shutdown()


def trace_started(t: Trace) -> None:
    """Tell that a trace began."""
    _tell("on_trace_start", t, lambda: export_trace("start", t))


def trace_ended(t: Trace) -> None:
    """Tell that a trace ended."""
    _tell("on_trace_end", t, lambda: export_trace("end", t))


def span_started(s: Span) -> None:
    """Tell that a span began."""
    _tell("on_span_start", s, lambda: export_span("start", s))


def span_ended(s: Span) -> None:
    """Tell that a span ended."""
    _tell("on_span_end", s, lambda: export_span("end", s))
    if not _processors and records.sink is None:
        nobody_listens()


def nobody_listens() -> None:
    """Say, once, that spans end unheard."""
    global _unheard
    if _unheard and not _disabled:
        _unheard = False
        _log.warning(
            "a span ended, and no processor is there to hear of it; add one with "
            "agentix.trace.add_processor, or say agentix.trace.set_tracing_disabled(True)"
        )


def _tell(what: str, subject: object, export: Callable[[], bytes]) -> None:
    if _disabled:
        return
    for processor in _processors:
        _call(processor, getattr(processor, what, None), subject)
    if (sink := records.sink) is not None:
        try:
            sink(export())
        except Exception:
            complain(_tell, f"a {type(subject).__name__} could not be sent to the host")


def _call(processor: Processor, callback: Callable[..., None] | None, *args: object) -> None:
    try:
        if callback is not None:
            callback(*args)
    except Exception:
        complain(processor, f"the trace processor {processor!r} raised; later errors are not shown")


def complain(about: object, text: str) -> None:
    """Log the exception that is being handled, once for whatever it is about."""
    if id(about) not in _complained:
        _complained[id(about)] = about  # held, so that no other one gets its id
        _log.exception(text)
