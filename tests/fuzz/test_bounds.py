"""What a hostile result costs its reader is bounded by its length, in time and in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.bounds import SITUATIONS

_AT_ONCE = 10
NAMES = list(SITUATIONS)


@pytest.mark.parametrize("first", range(0, len(NAMES), _AT_ONCE))
def test_time_and_memory_are_bounded_by_the_length(first: int) -> None:
    some = NAMES[first : first + _AT_ONCE]
    ran = subprocess.run(
        [sys.executable, "-m", "fuzz.bounds", *some],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert len(ran.stdout.splitlines()) == len(some)
