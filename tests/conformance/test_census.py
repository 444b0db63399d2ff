"""What the suite takes for a sandbox's own, and may end: never what is anybody else's."""

from __future__ import annotations

from pathlib import Path

from agentix.testing.census import Place


def test_what_is_mounted_for_everybody_makes_nobody_a_sandbox() -> None:
    place = Place(Path("/dev"), "no such mark")
    assert any(place._mounts()), "there are file systems below /dev"
    assert place.processes() == {}
