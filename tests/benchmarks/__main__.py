"""Print every number that the design promises, next to what it is measured against.

    python tests/benchmarks [build] [real] [sandbox] [call] [large] [logs] [edges]

Machines are noisy; a ratio of two numbers of one run is not. The exit code says whether all limits
hold.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

if TYPE_CHECKING:
    from row import Row

SECTIONS = ("build", "real", "sandbox", "call", "large", "logs", "edges")


def main(wanted: list[str]) -> int:
    """Run the sections *wanted* and show one table each."""
    console = Console()
    missed = 0
    for section in wanted or SECTIONS:
        if importlib.util.find_spec(f"bench_{section}") is None:
            sys.exit(f"no benchmark {section!r}; choose from {', '.join(SECTIONS)}")
        table = Table("what", "ours", "reference", "ratio", "limit", "", title=section)
        with console.status(f"measuring {section} …"):
            rows: list[Row] = list(importlib.import_module(f"bench_{section}").rows())
        for row in rows:
            table.add_row(*row.cells())
            missed += not row.holds
        console.print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
