from __future__ import annotations

from pathlib import Path

import pytest

from agentix.build.lock import load
from agentix.build.lock.inputs import is_current
from agentix.platforms import PLATFORMS

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("name", ["hello-world", "data-report"])
def test_the_lock_in_the_repository_is_current_and_for_every_platform(name: str) -> None:
    lock = load(EXAMPLES / name / "bundle.lock")
    assert is_current(lock, EXAMPLES / name), f"run `agentix lock examples/{name}`, commit the lock"
    assert set(lock.platforms) == set(PLATFORMS)
    assert not any(target.missing for target in lock.platforms.values())
