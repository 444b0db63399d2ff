"""The docker provider keeps every promise of a provider."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import docker
import pytest
from images.engine import loaded

from agentix.provider.docker import DockerProvider, DockerProviderConfig
from agentix.testing import Environment, Isolation, ProviderConformance, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from images import TaskImage

    from agentix.testing.census import Place

pytestmark = [pytest.mark.docker, pytest.mark.nix]


def provider(**choices: object) -> DockerProvider:
    return DockerProviderConfig.model_validate({"stop_timeout": 1, **choices}).to_provider()


def subject_of(
    client: docker.DockerClient, task: TaskImage, image: str, bundle: Path, place: Place
) -> Subject:
    user, _, group = task.config.user.partition(":")

    def ours() -> set[str]:
        """Name the containers with a folder of this run, and what they alone can have made."""
        found = client.api.containers(all=True, filters={"label": "agentix.sandbox"})
        folder = f"{place.folder}/"
        return {
            f"container {each['Names'][0]}"
            for each in found
            if any(mount.get("Source", "").startswith(folder) for mount in each["Mounts"])
        }

    return Subject(
        provider=provider,
        image=image,
        bundle=bundle,
        environment=task.environment,
        user=(int(user or 0), int(group or 0)),
        folder=task.config.workdir,
        environment_program=task.environment_program,
        limits=frozenset({"cpu", "memory"}),
        limited_processes=lambda count: provider(pids_limit=count),
        without_network=partial(provider, network="none"),
        impatient=lambda seconds: provider(start_timeout=seconds),
        count=ours,
    )


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
            yield subject_of(client, task, image, bundle, place)


class TestDockerAsRoot(Environment, Isolation):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(
        cls, client: docker.DockerClient, root_task: TaskImage, bundle: Path, place: Place
    ) -> Iterator[Subject]:
        with loaded(client, root_task) as image:
            yield subject_of(client, root_task, image, bundle, place)
