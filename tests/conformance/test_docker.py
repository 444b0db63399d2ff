"""The docker provider keeps every promise of a provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

import docker
import pytest
from images.engine import loaded
from subjects.engine import engine_subject

from agentix.testing import Environment, Isolation, ProviderConformance, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from images import TaskImage

    from agentix.testing.census import Place

pytestmark = [pytest.mark.docker, pytest.mark.nix]


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


class TestDocker(ProviderConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(
        cls, client: docker.DockerClient, task: TaskImage, bundle: Path, place: Place
    ) -> Iterator[Subject]:
        with loaded(client, task) as image:
            yield engine_subject("docker", client, task, image, bundle, place)


class TestDockerAsRoot(Environment, Isolation):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(
        cls, client: docker.DockerClient, root_task: TaskImage, bundle: Path, place: Place
    ) -> Iterator[Subject]:
        with loaded(client, root_task) as image:
            yield engine_subject("docker", client, root_task, image, bundle, place)
