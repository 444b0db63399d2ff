"""The docker provider keeps the promises of a provider with an engine on another machine, too."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from far_engine import far_engine
from images.engine import loaded
from subjects.engine import engine_subject, provider

from agentix.testing import Cancellation, Isolation, Lifecycle, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from far_engine import FarEngine
    from images import TaskImage

    from agentix.testing.census import Place

pytestmark = [pytest.mark.far, pytest.mark.nix]


@pytest.fixture(scope="module")
def far() -> Iterator[FarEngine]:
    with far_engine() as far:
        yield far


class TestRemoteEngine(Lifecycle, Cancellation, Isolation):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(
        cls, far: FarEngine, task: TaskImage, bundle: Path, place: Place
    ) -> Iterator[Subject]:
        with loaded(far.client, task) as image, pytest.MonkeyPatch.context() as patch:
            for name, value in far.tls.items():
                patch.setenv(name, value)

            def containers() -> set[str]:
                found = far.client.api.containers(all=True, filters={"label": "agentix.sandbox"})
                return {f"container {each['Names'][0]}" for each in found}

            subject = engine_subject("docker", far.client, task, image, bundle, place)
            # There is no bridge in that engine, so all of its containers are without a network.
            yield replace(subject, count=containers, without_network=partial(provider, "docker"))
