"""As many sandboxes as this machine is promised to bear, and none of them left.

``make scale`` does it in full; without AGENTIX_SCALE, in the ordinary run of all tests, in short.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import docker
import pytest
from images.bundled import numpy_task
from images.engine import loaded
from subjects.bubblewrap import bubblewrap
from subjects.engine import engine_subject, mounted
from subjects.task import task_image

from agentix.testing.group import Group
from scale.crowd import crowd
from scale.regrets import regrets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.testing import Subject
    from agentix.testing.case import Case
    from agentix.testing.census import Place

FULL = "AGENTIX_SCALE" in os.environ
ROUNDS = 200 if FULL else 40
MIB = 90
SEED = int(os.environ.get("AGENTIX_SCALE") or random.randrange(10**6))

pytestmark = [pytest.mark.slow, pytest.mark.nix, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numpy_task(tmp_path_factory.mktemp("numpy-task")).path


class Scale(Group):
    size: ClassVar[int]

    def engine_mounts(self, place: Place) -> set[str]:
        return set()

    def test_a_crowd_is_there_at_once_and_gone_afterwards(
        self, case: Case, place: Place, pytestconfig: pytest.Config
    ) -> None:
        there: set[str] = set()
        seen = case.run(
            crowd(case.subject, place, self.size, lambda: there.update(self.engine_mounts(place)))
        )
        _say(pytestconfig, f"{type(self).__name__[4:]}: {seen}")
        assert seen.share <= MIB
        table = Path("/proc/self/mountinfo").read_text()
        assert [each for each in there if each in table] == []

    def test_creating_and_cancelling_at_any_moment_leaves_nothing(
        self, case: Case, place: Place, pytestconfig: pytest.Config
    ) -> None:
        said = f"{type(self).__name__[4:]}: {ROUNDS} rounds of create and cancel, seed {SEED}"
        cancelled = 0
        try:
            cancelled = case.run(regrets(case.subject, place, ROUNDS, SEED))
        finally:
            _say(pytestconfig, f"{said}: {cancelled} were cancelled in time")
        assert cancelled > ROUNDS // 4


@pytest.mark.bubblewrap
class TestBubblewrap(Scale):
    size = 64

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls, bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Subject:
        return _patient(bubblewrap(task_image(), bundle, tmp_path_factory.mktemp("bubblewrap")))


@pytest.mark.docker
class TestDocker(Scale):
    size = 32 if FULL else 16

    def engine_mounts(self, place: Place) -> set[str]:
        client = docker.from_env()
        try:
            return mounted(client, place)
        finally:
            client.close()

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls, bundle: Path, place: Place) -> Iterator[Subject]:
        client, task = docker.from_env(), task_image()
        try:
            with loaded(client, task) as image:
                subject = engine_subject("docker", client, task, image, bundle, place)
                yield _patient(subject)
        finally:
            client.close()


def _patient(subject: Subject) -> Subject:
    return replace(subject, patience=900)


def _say(config: pytest.Config, text: str) -> None:
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        config.get_terminal_writer().line(f"\n{text}")
