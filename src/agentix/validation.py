"""Values from outside: models that take nothing for granted, and what does not fit one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from agentix.text import plain

if TYPE_CHECKING:
    from pydantic import ValidationError


class Strict(BaseModel):
    """A model that knows all of its keys, converts nothing and does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def first_fault(error: ValidationError) -> str:
    """Return the first fault that *error* lists: the key, where there is one, and the reason."""
    fault = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(map(str, fault["loc"]))
    reason = fault["msg"].removeprefix("Value error, ")
    return plain(f"{key}: {reason}" if key else reason)
