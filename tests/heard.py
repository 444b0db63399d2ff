"""A progress that remembers what it was told: which steps there were, how far and how they came."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from agentix.progress import Step, Unit

_WARNING = "warning: "


class Heard:
    """Is the progress, and each of its steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.outcomes: list[str] = []
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
        self.outcomes.append(text)

    @property
    def warnings(self) -> list[str]:
        """The outcomes that are warnings, without that word."""
        return [o.removeprefix(_WARNING) for o in self.outcomes if o.startswith(_WARNING)]
