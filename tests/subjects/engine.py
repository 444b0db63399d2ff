"""The providers of containers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentix.provider.docker import DockerProvider, DockerProviderConfig
from agentix.testing import Subject

if TYPE_CHECKING:
    from docker import DockerClient
    from images import TaskImage

    from agentix.testing.census import Place


def provider(engine: str, **choices: object) -> DockerProvider:
    return DockerProviderConfig.model_validate(
        {"container_engine": engine, "stop_timeout": 1, **choices}
    ).to_provider()


def containers(client: DockerClient, place: Place) -> list[dict[str, Any]]:
    """Return the containers with a folder of this run; others use the engine as well."""
    found = client.api.containers(all=True, filters={"label": "agentix.sandbox"})
    folder = f"{place.folder}/"
    return [
        each
        for each in found
        if any(mount.get("Source", "").startswith(folder) for mount in each["Mounts"])
    ]


def mounted(client: DockerClient, place: Place) -> set[str]:
    """Return what is mounted on this machine for these containers: their roots and networks."""
    places: set[str] = set()
    for each in containers(client, place):
        found = client.api.inspect_container(each["Id"])
        places.add(found["GraphDriver"]["Data"].get("MergedDir", ""))
        places.add(found["NetworkSettings"].get("SandboxKey", ""))
    table = Path("/proc/self/mountinfo").read_text()
    return {place for place in places if place and place in table}


def engine_subject(
    engine: str, client: DockerClient, task: TaskImage, image: str, bundle: Path, place: Place
) -> Subject:
    """Describe the provider of *engine*, where *task* is called *image*."""
    user, _, group = task.config.user.partition(":")
    return Subject(
        provider=partial(provider, engine),
        image=image,
        bundle=bundle,
        environment=task.environment,
        user=(int(user or 0), int(group or 0)),
        folder=task.config.workdir,
        environment_program=task.environment_program,
        limits=frozenset({"cpu", "memory"}),
        limited_processes=lambda count: provider(engine, pids_limit=count),
        without_network=partial(provider, engine, network="none"),
        impatient=lambda seconds: provider(engine, start_timeout=seconds),
        count=lambda: {f"container {each['Names'][0]}" for each in containers(client, place)},
    )
