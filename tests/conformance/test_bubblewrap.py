"""The bubblewrap provider keeps every promise of a provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from subjects.bubblewrap import bubblewrap

from agentix.testing import Environment, Isolation, ProviderConformance, Subject

if TYPE_CHECKING:
    from pathlib import Path

    from images import TaskImage

pytestmark = [pytest.mark.bubblewrap, pytest.mark.nix]


class TestBubblewrap(ProviderConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(
        cls, task: TaskImage, bundle: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> Subject:
        return bubblewrap(task, bundle, tmp_path_factory.mktemp("bubblewrap"))


class TestBubblewrapAsRoot(Environment, Isolation):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(
        cls, root_task: TaskImage, bundle: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> Subject:
        return bubblewrap(root_task, bundle, tmp_path_factory.mktemp("bubblewrap"))
