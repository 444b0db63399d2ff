"""What tests of logs share: a handler that keeps what it is given."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


class Kept(logging.Handler):
    """Keeps records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "sandbox_id"):
            self.records.append(record)

    def messages(self, logger: str | None = None) -> list[str]:
        return [r.getMessage() for r in self.records if logger in (None, r.name)]


@pytest.fixture
def kept() -> Iterator[Kept]:
    """Give the records of sandboxes that come to this process, of all levels."""
    root = logging.getLogger()
    level, others = root.level, root.handlers[:]
    handler = Kept()
    root.handlers[:] = [handler]  # pytest's would format each of thousands
    root.setLevel(logging.NOTSET)
    try:
        yield handler
    finally:
        root.handlers[:] = others
        root.setLevel(level)
