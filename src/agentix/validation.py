"""What is wrong with a value that does not fit its model, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.text import plain

if TYPE_CHECKING:
    from pydantic import ValidationError


def first_fault(error: ValidationError) -> str:
    """Return the first fault that *error* lists: the key, where there is one, and the reason."""
    fault = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(map(str, fault["loc"]))
    reason = fault["msg"].removeprefix("Value error, ")
    return plain(f"{key}: {reason}" if key else reason)
