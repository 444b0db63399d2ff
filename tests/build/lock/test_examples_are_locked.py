"""The locks that are committed: what a reader of the examples builds is what has been tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentix.build.lock import loads
from agentix.build.lock.inputs import is_current
from agentix.build.project import read_project
from agentix.platforms import PLATFORMS

EXAMPLES = Path(__file__).parents[3] / "examples"
LOCKS = sorted(EXAMPLES.glob("*/bundle.lock"))


def test_every_example_that_is_a_bundle_has_a_lock() -> None:
    bundles = {
        file.parent
        for file in EXAMPLES.glob("*/pyproject.toml")
        if "agentix" in read_project(file.parent).tables.get("tool", {})
    }
    assert {file.parent for file in LOCKS} == bundles


@pytest.mark.parametrize("file", LOCKS, ids=lambda file: file.parent.name)
def test_the_lock_in_the_repository_is_current_and_for_every_platform(file: Path) -> None:
    text, example = file.read_text(), file.parent
    lock = loads(text)
    advice = f"run `agentix lock examples/{example.name}`, commit the lock"
    assert is_current(lock, example), advice
    assert text == lock.dumps(), advice  # locking it anew leaves no difference behind
    assert lock.plugins is not None, advice  # it was asked what plugins need
    assert "://" not in text
    assert set(lock.platforms) == set(PLATFORMS)
    assert not any(target.missing for target in lock.platforms.values())
