"""The bubblewrap provider."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from images.archives import write_docker_archive

from agentix.provider.bubblewrap import BubblewrapProvider, BubblewrapProviderConfig
from agentix.testing import Subject

if TYPE_CHECKING:
    from pathlib import Path

    from images import TaskImage


def provider(cache: Path, **choices: object) -> BubblewrapProvider:
    return BubblewrapProviderConfig.model_validate(
        {"cache": cache, "stop_timeout": 1, **choices}
    ).to_provider()


def impatient(cache: Path, seconds: float) -> BubblewrapProvider:
    return provider(cache, start_timeout=seconds)


def bubblewrap(task: TaskImage, bundle: Path, folder: Path) -> Subject:
    """Describe it, with *task* as an archive below *folder*."""
    archive = write_docker_archive(task, folder / "task.tar", tag="conformance:1")
    cache = folder / "cache"
    user, _, group = task.config.user.partition(":")
    return Subject(
        provider=partial(provider, cache),
        image=str(archive),
        bundle=bundle,
        environment=task.environment,
        user=(int(user or 0), int(group or 0)),
        folder=task.config.workdir,
        environment_program=task.environment_program,
        without_network=partial(provider, cache, network="none"),
        impatient=partial(impatient, cache),
    )
