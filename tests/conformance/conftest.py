"""What the conformance suite is run with here: one real bundle, and an image made for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from images.bundled import numpy_task
from subjects.task import task_image

if TYPE_CHECKING:
    from pathlib import Path

    from images import TaskImage


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numpy_task(tmp_path_factory.mktemp("numpy-task")).path


@pytest.fixture(scope="session")
def task() -> TaskImage:
    return task_image()


@pytest.fixture(scope="session")
def root_task() -> TaskImage:
    return task_image(as_root=True)
