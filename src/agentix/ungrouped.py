"""One error for the caller, where several tasks worked at once."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentix.errors import AgentixError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def ungrouped() -> Iterator[None]:
    """Raise by itself the first error of a group of those that a user can do something about.

    These are ours and the system's. A group with any other in it tells of a defect, and stays
    whole. Not by ``except*``: CPython 3.11.2, which is Debian 12's, puts what is raised inside of
    one into a group again.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        found, others = group.split((AgentixError, OSError))
        if found is None or others is not None:
            raise
        error: BaseException = found
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
