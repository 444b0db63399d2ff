"""Measure the steps of long work while somebody else shows them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.progress import Progress, Step, Unit


class Timed:
    """Passes steps on to *progress* and keeps their ``seconds`` by title."""

    def __init__(self, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def step(self, title: str, *, total: int | None = None, unit: Unit = "items") -> Iterator[Step]:
        """Open the step *title* and measure how long it stays open."""
        start = time.perf_counter()
        try:
            with self._progress.step(title, total=total, unit=unit) as step:
                yield step
        finally:
            spent = time.perf_counter() - start
            self.seconds[title] = round(self.seconds.get(title, 0.0) + spent, 3)
