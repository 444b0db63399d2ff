"""How long work tells what it is doing: the seam between who works and who shows it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

Unit = Literal["bytes", "items"]


class Step(Protocol):
    """One step under way."""

    def advance(self, amount: int = 1) -> None:
        """Say that *amount* more units are done. May be called from any thread."""

    def outcome(self, text: str) -> None:
        """Say in a few words how the step ended, such as ``cached`` or ``22 wheels``."""


class Progress(Protocol):
    """Receives the steps of long work, in order."""

    def step(
        self, title: str, *, total: int | None = None, unit: Unit = "items"
    ) -> AbstractContextManager[Step]:
        """Open the step *title*; leaving the context ends it, an exception marks it failed."""


class _SilentStep:
    def __enter__(self) -> Step:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def advance(self, amount: int = 1) -> None:
        pass

    def outcome(self, text: str) -> None:
        pass


class Silent:
    """Show nothing."""

    def step(
        self, title: str, *, total: int | None = None, unit: Unit = "items"
    ) -> AbstractContextManager[Step]:
        """Open a step that nobody sees."""
        return _SilentStep()


SILENT: Progress = Silent()


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
