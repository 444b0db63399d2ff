"""A message of each kind, and more of those that come in several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.wire.messages import (
    Await,
    Call,
    Cancel,
    Failure,
    Follow,
    Item,
    Leave,
    Next,
    Noted,
    Pending,
    Ready,
    Record,
    Records,
    Reply,
    Signal,
    Taken,
    Value,
)

if TYPE_CHECKING:
    from agentix.wire.messages import Message

MESSAGES: list[Message] = [
    Call("1", "m::f", "values", 5, 0, False, "", (1, 2)),
    Cancel("1"),
    Ready(),
    Value("1", "pickle", "ab", (0, 1, 2)),
    Failure("1", "raised", "ValueError", "\udc80", "trace", None),
    Failure("1", "exited", "WorkerExited", "", returncode=-9),
    Await("1", 1000),
    Next("1", 0, 1000),
    Follow("c", "", 0, 30_000),
    Leave("c"),
    Item("1", 1, "values", "b", (1, 2)),
    Pending("1"),
    Records("j", 1, 2, (10,)),
    Noted(),
    Record("", (5,)),
    Taken("1", 3),
    Signal("/plugin", "event", 0, (1,)),
    Reply(1, "", "", None, (1,)),
    Reply(2, "ValueError", "no", 429, (0,)),
]
