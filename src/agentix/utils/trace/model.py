"""Traces and spans: what they know, and how one becomes the parent of the next.

Ids are OpenTelemetry's: 32 hex digits for a trace, 16 for a span.
"""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from agentix.utils import context
from agentix.utils.trace import processors

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

Status: TypeAlias = Literal["unset", "ok", "error"]

# Strings only, since it follows remote calls: (trace id, span id), the latter empty outside of any
# span. On the other side the span that it names is the parent of those opened there.
_parent = context.var("agentix.trace.parent", default=("", ""))
_current: ContextVar[Span | None] = ContextVar("agentix.trace.span", default=None)


def iso(nanoseconds: int) -> str:
    """Write a time as ISO 8601 in UTC, with microseconds; empty for 0."""
    if not nanoseconds:
        return ""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
    return moment.isoformat(timespec="microseconds")


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened during a span."""

    name: str
    time_ns: int
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def time_iso(self) -> str:
        """When it happened."""
        return iso(self.time_ns)


class _Timed:
    """What has a beginning and an end."""

    __slots__ = ()

    start_ns: int
    end_ns: int
    """0 while it goes on."""

    @property
    def start_iso(self) -> str:
        """When it began; empty before."""
        return iso(self.start_ns)

    @property
    def end_iso(self) -> str:
        """When it ended; empty before."""
        return iso(self.end_ns)


@dataclass(slots=True)
class Trace(_Timed):
    """One run of something, of which spans are the steps. A context manager: enter it once."""

    name: str
    metadata: dict[str, Any] = field(default_factory=dict)
    trace_id: str = field(default_factory=lambda: os.urandom(16).hex())
    start_ns: int = 0
    end_ns: int = 0
    """0 while it goes on."""
    _tokens: list[Token[Any]] = field(default_factory=list, repr=False, compare=False)

    def __enter__(self) -> Self:
        if self.start_ns:
            raise RuntimeError(f"the trace {self.name!r} has begun already")
        self.start_ns = time.time_ns()
        self._tokens = [_parent.set((self.trace_id, "")), _current.set(None)]
        processors.trace_started(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end_ns = time.time_ns()
        _reset(self._tokens)
        processors.trace_ended(self)


@dataclass(slots=True)
class Span(_Timed):
    """One step, timed. A context manager: enter it once.

    An exception that leaves it makes its status ``error``, and is one of its events.
    """

    name: str
    attrs: dict[str, Any] = field(default_factory=dict)
    trace_id: str = ""
    parent_id: str = ""
    span_id: str = field(default_factory=lambda: os.urandom(8).hex())
    events: list[SpanEvent] = field(default_factory=list)
    status: Status = "unset"
    status_message: str = ""
    start_ns: int = 0
    end_ns: int = 0
    """0 while it goes on."""
    _tokens: list[Token[Any]] = field(default_factory=list, repr=False, compare=False)

    def add_event(self, name: str, attrs: dict[str, Any] | None = None, /, **more: Any) -> None:
        """Note that something happened now."""
        self.events.append(SpanEvent(name, time.time_ns(), {**(attrs or {}), **more}))

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute."""
        self.attrs[key] = value

    def set_attributes(self, attrs: dict[str, Any] | None = None, /, **more: Any) -> None:
        """Set several attributes."""
        self.attrs.update(attrs or {}, **more)

    def set_status(self, status: Status, message: str = "") -> None:
        """Say how it went."""
        if status not in ("unset", "ok", "error"):
            raise ValueError(f"a span's status is 'unset', 'ok' or 'error', not {status!r}")
        self.status, self.status_message = status, message

    def set_error(self, error: BaseException | str) -> None:
        """Say that it failed; an exception is noted as an event with its traceback."""
        if isinstance(error, str):
            self.set_status("error", error)
            return
        kind = type(error)
        said = "".join(traceback.format_exception_only(error)).strip()
        self.set_status("error", said)
        self.add_event(
            "exception",
            {
                "exception.type": f"{kind.__module__}.{kind.__qualname__}".removeprefix(
                    "builtins."
                ),
                "exception.message": said.partition(": ")[2],
                "exception.stacktrace": "".join(traceback.format_exception(error)),
            },
        )

    def __enter__(self) -> Self:
        if self.start_ns:
            raise RuntimeError(f"the span {self.name!r} has begun already")
        if not self.trace_id:
            self.trace_id, self.parent_id = _parent.get()
            self.trace_id = self.trace_id or os.urandom(16).hex()
        self.start_ns = time.time_ns()
        self._tokens = [_parent.set((self.trace_id, self.span_id)), _current.set(self)]
        processors.span_started(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing a generator in the middle of a span is no failure of the span.
        if error is not None and not isinstance(error, GeneratorExit) and self.status != "error":
            self.set_error(error)
        self.end_ns = time.time_ns()
        _reset(self._tokens)
        processors.span_ended(self)


def _reset(tokens: list[Token[Any]]) -> None:
    for token in tokens:
        # One that ends in another task or thread than it began in never was current there.
        with contextlib.suppress(ValueError):
            token.var.reset(token)
    tokens.clear()


def trace(name: str, **metadata: Any) -> Trace:
    """Make a trace, to be entered: ``with trace.trace("rollout", task=7): …``."""
    return Trace(name, metadata)


def span(name: str, parent: Span | Trace | None = None, **attrs: Any) -> Span:
    """Make a span, to be entered: ``with trace.span("step") as span: …``.

    Its parent is the span that is current where it is entered (in a sandbox, at first, the one that
    was current on the host where ``remote`` was called), or the one given here.
    """
    if parent is None:
        return Span(name, attrs)
    return Span(name, attrs, parent.trace_id, parent.span_id if isinstance(parent, Span) else "")


def current_span() -> Span | None:
    """Return the span that was entered last in this task or thread."""
    return _current.get()
