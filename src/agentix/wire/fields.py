"""The fields of messages: their types, what is valid in them, and how a text is made to fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from agentix.wire.protocol import (
    MAX_BUFFERS,
    MAX_DOCUMENT,
    MAX_ID,
    MAX_NAME,
    MAX_PAYLOAD,
    MAX_RECORD,
    MAX_SIGNAL,
    MAX_TARGET,
    MAX_TEXT,
    MAX_WAIT,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Form: TypeAlias = Literal["values", "pickle"]
"""How a result is encoded: the closed data model or, only where the host asked for it, a pickle."""

FailureKind: TypeAlias = Literal["raised", "refused", "cancelled", "exited", "unknown", "forgotten"]
"""The function raised; the runtime could not run it, or not send its result; it was cancelled; the
worker died; no such call has arrived; it has ended, and its result is not kept any more."""

Segments: TypeAlias = tuple[int, ...]

_BIG: Final = 1 << 62


def _text(value: Any, most: int, least: int = 0) -> bool:
    return type(value) is str and least <= len(value) <= most


def _number(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _id(value: Any) -> bool:
    return type(value) is str and 1 <= len(value) <= MAX_ID


def _wait(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_WAIT


def _segments(value: Any) -> bool:
    if type(value) is not tuple or not 1 <= len(value) <= MAX_BUFFERS + 1:
        return False
    if len(value) == 1:
        return _number(value[0], 0, MAX_PAYLOAD)
    return all(_number(length, 0, MAX_PAYLOAD) for length in value) and sum(value) <= MAX_PAYLOAD


def _one_segment(value: Any, most: int) -> bool:
    return type(value) is tuple and len(value) == 1 and _number(value[0], 0, most)


def _call(
    call_id: Any,
    target: Any,
    form: Any,
    limit: Any,
    wait: Any,
    stream: Any,
    minor: Any,
    segments: Any,
) -> bool:
    return (
        _id(call_id)
        and _text(target, MAX_TARGET, 1)
        and form in _FORMS
        and _number(limit, 0, MAX_PAYLOAD)
        and _wait(wait)
        and type(stream) is bool
        and _text(minor, 8)
        and _segments(segments)
    )


def _value(call_id: Any, form: Any, kinds: Any, segments: Any) -> bool:
    return (
        _id(call_id)
        and form in _FORMS
        and _text(kinds, MAX_BUFFERS)
        and not kinds.strip("ab")
        and _segments(segments)
        and len(kinds) == len(segments) - 1
        and (form == "pickle" or segments[0] <= MAX_DOCUMENT)
    )


def _item(call_id: Any, number: Any, form: Any, kinds: Any, segments: Any) -> bool:
    return _number(number, 1, _BIG) and _value(call_id, form, kinds, segments)


def _failure(
    call_id: Any, kind: Any, name: Any, message: Any, traceback: Any, returncode: Any
) -> bool:
    return (
        _id(call_id)
        and kind in _KINDS
        and _text(name, MAX_TARGET)
        and _text(message, MAX_TEXT)
        and _text(traceback, MAX_TEXT)
        and (returncode is None or _number(returncode, -(1 << 31), 1 << 31))
    )


def _reply(request: Any, name: Any, message: Any, status: Any, segments: Any) -> bool:
    return (
        _number(request, 1, _BIG)
        and _text(name, MAX_TARGET)
        and _text(message, MAX_TEXT)
        and (status is None or _number(status, 0, 999))
        and _one_segment(segments, MAX_SIGNAL)
    )


_FORMS: Final = frozenset(get_args(Form))
_KINDS: Final = frozenset(get_args(FailureKind))
VALID: Final[dict[str, Callable[..., bool]]] = {
    "call": _call,
    "await": lambda call_id, wait: _id(call_id) and _wait(wait),
    "next": lambda call_id, after, wait: _id(call_id) and _number(after, 0, _BIG) and _wait(wait),
    "cancel": _id,
    "follow": lambda client, journal, after, wait: (
        _id(client) and _text(journal, MAX_ID) and _number(after, 0, _BIG) and _wait(wait)
    ),
    "leave": _id,
    "value": _value,
    "item": _item,
    "failure": _failure,
    "pending": _id,
    "records": lambda journal, first, count, segments: (
        _id(journal)
        and _number(first, 1, _BIG)
        and _number(count, 0, 1 << 20)
        and _one_segment(segments, 4 * MAX_RECORD)
    ),
    "noted": lambda: True,
    "ready": lambda: True,
    "record": lambda call, segments: _text(call, MAX_ID) and _one_segment(segments, MAX_RECORD),
    "taken": lambda call_id, number: _id(call_id) and _number(number, 0, _BIG),
    "signal": lambda namespace, event, request, segments: (
        _text(namespace, MAX_NAME, 1)
        and _text(event, MAX_NAME, 1)
        and _number(request, 0, _BIG)
        and _one_segment(segments, MAX_SIGNAL)
    ),
    "reply": _reply,
}
"""By a message's tag, whether values that came with it may be its fields."""


def shorten(text: str, limit: int = MAX_TEXT) -> str:
    """Cut a text that is too long in its middle: both ends of a traceback tell something."""
    if len(text) <= limit:
        return text
    mark = f"\n… {len(text) - limit:,} characters left out …\n"
    half = max(0, (limit - len(mark)) // 2)
    return text[:half] + mark + text[len(text) - half :]
