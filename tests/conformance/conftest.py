"""What the conformance suite is run with here: one real bundle, and images made for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from images import ImageConfig, image
from images.bundled import numpy_task
from images.debian import ImagesUnavailable

if TYPE_CHECKING:
    from pathlib import Path

    from images import TaskImage


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numpy_task(tmp_path_factory.mktemp("numpy-task")).path


@pytest.fixture(scope="session")
def task() -> TaskImage:
    """A task image that says everything that an image can say; skip where none can be made."""
    config = ImageConfig(
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
    try:
        return replace(image("busybox"), config=config)
    except ImagesUnavailable as error:
        pytest.skip(f"task images cannot be made here: {error}")


@pytest.fixture(scope="session")
def root_task(task: TaskImage) -> TaskImage:
    """The same for root, who may do most."""
    return replace(task, config=replace(task.config, user=""))
