"""Tell a failure as text: nothing of the exception itself leaves the sandbox."""

from __future__ import annotations

import asyncio
import traceback

from agentix.wire.fields import shorten
from agentix.wire.messages import Failure

_OWN = __name__.rpartition(".")[0]


def failure_of(call_id: str, error: BaseException) -> Failure:
    """Describe what a function raised, with the traceback from its own frames on."""
    cancelled = isinstance(error, asyncio.CancelledError)
    return Failure(
        call_id,
        "cancelled" if cancelled else "raised",
        shorten(type_name(type(error)), 1024),
        shorten(text_of(error) or ("the call was cancelled" if cancelled else "")),
        shorten(_traceback(error)),
    )


def refusal(call_id: str, name: str, text: str, error: BaseException | None = None) -> Failure:
    """Describe why the runtime could not run a call, or not send its result."""
    trace = "" if error is None else _traceback(error)
    return Failure(call_id, "refused", name, shorten(text), shorten(trace))


def type_name(cls: type) -> str:
    """Name a class as tracebacks do."""
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")


def text_of(error: BaseException) -> str:
    """Give an exception's own text, whatever it does when it is asked for it."""
    try:
        return "".join(str(error))  # a plain str, whatever the exception gives
    except BaseException as exc:
        return f"<its text cannot be had: {type(exc).__name__}>"


def _traceback(error: BaseException) -> str:
    """Format a traceback without the runtime's own frames at its top."""
    first = error.__traceback__
    while first is not None and first.tb_frame.f_globals.get("__package__") == _OWN:
        first = first.tb_next
    try:
        described = traceback.TracebackException(
            type(error), error, first, compact=True, max_group_width=32
        )
        return "".join(described.format())
    except BaseException as exc:
        return f"{type_name(type(error))}: <no traceback: {type(exc).__name__}>\n"
