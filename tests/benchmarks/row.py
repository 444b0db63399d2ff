"""One line of the benchmark's table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement, the reference measured beside it, and the limit that was promised.

    ``limit`` bounds the ratio to the reference when ``relative``, else the value itself (in
    ``unit``). More is better only where ``at_least`` says so.
    """

    what: str
    value: float
    unit: str
    limit: float | None = None
    reference: float | None = None
    against: str = ""
    relative: bool = False
    at_least: bool = False

    @property
    def ratio(self) -> float | None:
        """Return how many times the reference the value is."""
        return self.value / self.reference if self.reference else None

    @property
    def holds(self) -> bool:
        """Say whether the limit holds; without one there is nothing to hold."""
        measured = self.ratio if self.relative else self.value
        if self.limit is None or measured is None:
            return True
        return measured >= self.limit if self.at_least else measured <= self.limit

    def cells(self) -> tuple[str, ...]:
        """Return the row as the table shows it."""
        sign = "≥" if self.at_least else "≤"
        unit = "times" if self.relative else self.unit
        return (
            self.what,
            f"{self.value:.3g} {self.unit}",
            f"{self.reference:.3g} {self.unit}  {self.against}" if self.reference else self.against,
            f"{self.ratio:.2f}" if self.ratio is not None else "",
            f"{sign} {self.limit:g} {unit}" if self.limit is not None else "",
            "[green]ok[/]" if self.holds else "[red]missed[/]",
        )
