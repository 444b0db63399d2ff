"""Sandboxes of engines that do not answer."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentix.errors import ProviderError
from agentix.provider.docker import DockerProvider, PodmanProvider
from agentix.provider.runtime_folder import RuntimeFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    Provider = type[DockerProvider]

BOTH = pytest.mark.parametrize(
    ("provider", "kind"), [(DockerProvider, "docker"), (PodmanProvider, "podman")]
)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the test a place for folders of its own, and engines that are not there."""
    with tempfile.TemporaryDirectory(prefix="ax") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        for name in ("DOCKER_HOST", "CONTAINER_HOST"):
            monkeypatch.setenv(name, f"unix://{folder}/no-engine")
        yield Path(folder)


@BOTH
async def test_an_engine_of_which_nothing_is_recorded_need_not_be_there(
    provider: Provider, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await provider().list() == []
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        monkeypatch.setenv(name, "tcp://elsewhere:1")
    assert await provider().list() == []


async def test_podman_is_not_started_merely_to_say_that_it_has_nothing(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONTAINER_HOST")
    monkeypatch.setattr("agentix.provider.docker.address._podman_sockets", lambda: iter(()))
    assert await PodmanProvider().list() == []
    assert not (nowhere / "agentix/podman.sock").exists()


@BOTH
async def test_an_engine_that_has_sandboxes_and_does_not_answer_is_named(
    provider: Provider, kind: str, nowhere: Path
) -> None:
    folder = RuntimeFolder.create(kind, "some:image")
    folder.record({"engine": f"unix://{nowhere}/no-engine"})
    with pytest.raises(ProviderError, match=f"no {kind.title()} engine at"):
        await provider().list()


@BOTH
async def test_another_engine_that_does_not_answer_hides_nothing(
    provider: Provider, kind: str, nowhere: Path
) -> None:
    folder = RuntimeFolder.create(kind, "some:image")
    folder.record({"engine": f"unix://{nowhere}/another"})
    (found,) = await provider().list()
    assert (found.sandbox_id, found.status) == (folder.sandbox_id, "running")
    assert not found.abandoned
