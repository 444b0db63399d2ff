"""One error for the caller, where several tasks worked at once."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def ungrouped(kind: type[Exception]) -> Iterator[None]:
    """Raise the first *kind* of an exception group by itself; leave every other group alone.

    Not by ``except*``: CPython 3.11.2, which is Debian 12's, puts what is raised inside of one
    into a group again.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        found, others = group.split(kind)
        if found is None or others is not None:
            raise
        error: BaseException = found
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
