"""The apptainer provider keeps every promise of a provider."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from images.apptainer import apptainer
from images.archives import write_docker_archive

from agentix.provider.apptainer import ApptainerProvider, ApptainerProviderConfig
from agentix.testing import Cancellation, Environment, Isolation, ProviderConformance, Subject

if TYPE_CHECKING:
    from pathlib import Path

    from images import TaskImage

pytestmark = [pytest.mark.bubblewrap, pytest.mark.nix]


def subject_of(task: TaskImage, image: Path, program: Path, bundle: Path, folder: Path) -> Subject:
    config = ApptainerProviderConfig(program=program, cache=folder / "cache", stop_timeout=1)

    def impatient(seconds: float) -> ApptainerProvider:
        return config.model_copy(update={"start_timeout": seconds}).to_provider()

    return Subject(
        provider=config.to_provider,
        image=str(image),
        bundle=bundle,
        environment=task.environment,
        user=(os.getuid(), os.getgid()),  # Apptainer runs everything as its caller
        folder=task.config.workdir,
        environment_program=task.environment_program,
        without_network=config.to_provider,
        impatient=impatient,
        many=12,
    )


@pytest.fixture(scope="session")
def program(task: TaskImage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return apptainer(tmp_path_factory.mktemp("apptainer"))


class TestApptainer(ProviderConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(
        cls,
        task: TaskImage,
        program: Path,
        bundle: Path,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Subject:
        folder = tmp_path_factory.mktemp("archive")
        archive = write_docker_archive(task, folder / "task.tar", tag="conformance:1")
        return subject_of(task, archive, program, bundle, folder)


class TestApptainerWithSif(Environment, Isolation, Cancellation):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(
        cls,
        task: TaskImage,
        program: Path,
        bundle: Path,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Subject:
        folder = tmp_path_factory.mktemp("sif")
        archive = write_docker_archive(task, folder / "task.tar", tag="conformance:1")
        sif = folder / "task.sif"
        command = [str(program), "build", str(sif), f"docker-archive:{archive}"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        return subject_of(task, sif, program, bundle, folder)
