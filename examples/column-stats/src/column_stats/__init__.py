"""Statistics of one column of numbers."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class ColumnStats:
    """The shape of one column: its quartiles, and a histogram over equal bins."""

    mean: float
    quartiles: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]
    edges: npt.NDArray[np.float64]


def describe(values: npt.NDArray[np.float64], bins: int = 10) -> ColumnStats:
    """Describe *values*, leaving out what is not a number."""
    values = values[np.isfinite(values)]
    counts, edges = np.histogram(values, bins=bins)
    quartiles = np.quantile(values, [0.25, 0.5, 0.75])
    return ColumnStats(float(values.mean()), quartiles, counts.astype(np.int64), edges)
