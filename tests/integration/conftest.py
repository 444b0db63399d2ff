"""What the integration tests share: one real bundle a session, and a watch on what they leave."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engines import ENGINES, EngineUnderTest, docker_engine, podman_engine
from images import TaskImage, image
from images.bundled import numpy_task
from images.debian import ImagesUnavailable
from images.engine import Leftovers, loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import docker

    from agentix.bundle import CachedBundle


@pytest.fixture(scope="session")
def numpy_bundle(tmp_path_factory: pytest.TempPathFactory) -> CachedBundle:
    """The project numpy-task as a deployed bundle; its module can be imported from then on."""
    return numpy_task(tmp_path_factory.mktemp("numpy-task"))


@pytest.fixture(scope="session")
def task_image() -> Callable[[str], TaskImage]:
    """Give a task image by name; skip where none can be made."""

    def obtain(name: str) -> TaskImage:
        try:
            return image(name)
        except ImagesUnavailable as error:
            pytest.skip(f"task images cannot be made here: {error}")

    return obtain


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[EngineUnderTest]:
    """Each engine in turn."""
    with docker_engine() if request.param == "docker" else podman_engine() as engine:
        yield engine


@pytest.fixture(scope="session")
def client(engine: EngineUnderTest) -> docker.DockerClient:
    return engine.client


@pytest.fixture(scope="module")
def busybox(client: docker.DockerClient, task_image: Callable[[str], TaskImage]) -> Iterator[str]:
    """The name of an image, in the engine, that holds one static busybox."""
    with loaded(client, task_image("busybox")) as tag:
        yield tag


@pytest.fixture
def leftovers(client: docker.DockerClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leftovers]:
    """Whatever a test does, its sandboxes leave nothing in the engine or in their folder."""
    # Not tmp_path: the path of a socket holds 107 bytes.
    runtime = Path(tempfile.mkdtemp(prefix="agentix-test-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    found = Leftovers(client, runtime / "agentix")
    try:
        yield found
        found.check()
    finally:
        found.end()
        shutil.rmtree(runtime)
