"""What gives look-ups of names what they need, where an image may lack it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentix.errors import ImageError
from agentix.provider.bubblewrap.config import BubblewrapProviderConfig
from agentix.provider.bubblewrap.options import _names
from agentix.provider.images.store import Image
from agentix.provider.runtime_folder import RuntimeFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534


@pytest.fixture
def image() -> Iterator[Image]:
    """An image that everybody can read; pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory(prefix="ax") as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "etc").mkdir(mode=0o755)
        yield Image("task", root)


def options(image: Image) -> list[object]:
    folder = RuntimeFolder(Path("/nowhere/bubblewrap-000000000000"), "")
    return list(_names(image, folder, BubblewrapProviderConfig(network="none")))


def test_a_file_that_is_missing_is_made_by_the_images_owner(image: Image) -> None:
    assert "/etc/hosts" in options(image)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_where_only_another_user_could_make_it_that_is_said(image: Image) -> None:
    os.seteuid(NOBODY)
    try:
        with pytest.raises(ImageError, match=r"task has no /etc/hosts, and only the owner of"):
            options(image)
    finally:
        os.seteuid(0)
    (image.root / "etc/hosts").touch(mode=0o644)
    os.seteuid(NOBODY)
    try:
        assert "/etc/hosts" in options(image), "what is there can be covered"
    finally:
        os.seteuid(0)
