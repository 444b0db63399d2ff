"""A progress that remembers what it was told: which steps there were, and how far they came."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from agentix.progress import Step, Unit


class Heard:
    """Is the progress, and each of its steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.amount = 0

    def step(
        self, title: str, *, total: int | None = None, unit: Unit = "items"
    ) -> AbstractContextManager[Step]:
        self.steps.append(title)
        return self

    def __enter__(self) -> Step:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def advance(self, amount: int = 1) -> None:
        self.amount += amount

    def outcome(self, text: str) -> None:
        pass
