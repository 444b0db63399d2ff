"""Summarise a table. The function takes text and returns a dataclass with arrays in it."""

import io
import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from column_stats import ColumnStats, describe


@dataclass(frozen=True)
class Report:
    """A table in numbers: a description of each numeric column, and how they correlate."""

    rows: int
    columns: dict[str, ColumnStats]
    correlation: npt.NDArray[np.float64]


def summarize(csv: str) -> Report:
    """Read *csv* and report on its numeric columns."""
    table = pd.read_csv(io.StringIO(csv)).select_dtypes("number")
    columns = {str(name): describe(table[name].to_numpy(np.float64)) for name in table}
    return Report(len(table), columns, table.corr().to_numpy(np.float64))


def main() -> None:
    """Report on the table at standard input."""
    report = summarize(sys.stdin.read())
    for name, stats in report.columns.items():
        print(f"{name}: mean {stats.mean:.3f}, median {stats.quartiles[1]:.3f}")
