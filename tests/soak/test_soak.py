"""The soak in short: everything at once, nothing wrong, nothing that grows."""

from __future__ import annotations

import pytest

from soak.run import soak


@pytest.mark.slow
async def test_everything_at_once_leaves_nothing_wrong_and_nothing_grown() -> None:
    said: list[str] = []
    assert await soak(18, said.append) == [], "\n".join(said)
