"""The image that providers are tried with: it says everything that an image can say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from images import ImageConfig, image
from images.debian import ImagesUnavailable

if TYPE_CHECKING:
    from images import TaskImage

CONFIG = ImageConfig(
    env=(
        ("PATH", "/opt/task/bin:/bin"),
        ("TASK", "conformance"),
        ("SPACED", "two  words = 'quoted' $HOME é"),
        ("EMPTY", ""),
        ("LC_ALL", "C.UTF-8"),
    ),
    workdir="/work",
    user="1234:567",
    entrypoint=("/bin/false",),
)


def task_image(*, as_root: bool = False) -> TaskImage:
    """Return the image, for its user or for root, who may do most; skip where it cannot be made."""
    config = replace(CONFIG, user="") if as_root else CONFIG
    try:
        return replace(image("busybox"), config=config)
    except ImagesUnavailable as error:
        pytest.skip(f"task images cannot be made here: {error}")
