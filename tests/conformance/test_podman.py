"""The podman provider keeps every promise of a provider."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from engines import podman_engine
from images.engine import loaded
from subjects.engine import engine_subject

from agentix.testing import Environment, Isolation, ProviderConformance, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import docker
    from images import TaskImage

    from agentix.testing.census import Place

pytestmark = [pytest.mark.podman, pytest.mark.nix]


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    with podman_engine() as engine:
        yield engine.client


class TestPodman(ProviderConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(
        cls, client: docker.DockerClient, task: TaskImage, bundle: Path, place: Place
    ) -> Iterator[Subject]:
        with loaded(client, task) as image:
            # Podman starts one after the other, each in as long as Docker takes for three.
            yield replace(engine_subject("podman", client, task, image, bundle, place), many=4)


class TestPodmanAsRoot(Environment, Isolation):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(
        cls, client: docker.DockerClient, root_task: TaskImage, bundle: Path, place: Place
    ) -> Iterator[Subject]:
        with loaded(client, root_task) as image:
            yield engine_subject("podman", client, root_task, image, bundle, place)
