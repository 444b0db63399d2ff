"""Which images go with their sandboxes is written down, or said not to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentix.errors import ProviderError
from agentix.provider.docker import dropping
from agentix.provider.docker.address import Address

if TYPE_CHECKING:
    from pathlib import Path

WHERE = Address("docker", "unix:///run/some.sock")


def test_what_was_brought_is_known_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path))
    assert not dropping.may_go(WHERE, "some:image")
    dropping.note(WHERE, "some:image")
    assert dropping.may_go(WHERE, "some:image")
    assert not dropping.may_go(Address("docker", "unix:///run/other.sock"), "some:image")
    dropping.forget(WHERE, "some:image")
    assert not dropping.may_go(WHERE, "some:image")


def test_a_cache_that_takes_no_note_is_an_error_on_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "images").write_text("no folder")
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path))
    with pytest.raises(ProviderError, match=r"cannot note in .* that image 'some:image' is to go"):
        dropping.note(WHERE, "some:image")
