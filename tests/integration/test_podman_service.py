"""Podman where no service runs: one is started, found again, and gone when nobody needs it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engines import end_service, forget, listener, podman_environment
from images.bundles import bundle_that_runs
from patience import eventually
from procfs import processes

from agentix import SandboxConfig
from agentix.errors import ImageError, ProviderError
from agentix.provider.docker import PodmanProvider, address, service
from agentix.testing import probes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.bundle import CachedBundle


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user who has no service of Podman's running, and whose images are in their own place."""
    folder = Path(tempfile.mkdtemp(prefix="agentix-podman-"))
    for name, value in podman_environment(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CONTAINER_HOST", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "runtime"))
    (folder / "runtime").mkdir(mode=0o700)
    monkeypatch.setattr(address, "_podman_sockets", lambda: iter(()))
    try:
        yield folder
    finally:
        end_service(service.socket_path())
        forget(folder)


@pytest.mark.podman
def test_one_service_is_started_for_all_and_ends_when_it_is_idle(place: Path) -> None:
    path = service.socket_path()
    errors: list[BaseException] = []

    def start() -> None:
        try:
            service.ensure(path, idle=2)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert path.stat().st_mode & 0o077 == 0
    first = listener(path)
    assert first is not None
    assert Path(f"/proc/{first}/cwd").readlink() == Path("/proc")
    eventually(lambda: listener(path) is None, "the service ends by itself", within=60)
    assert list(path.parent.iterdir()) == []
    service.ensure(path, idle=60)
    assert listener(path) not in (None, first)


@pytest.mark.podman
@pytest.mark.parametrize("name", ["CONTAINER_HOST", "CONTAINER_CONNECTION"])
def test_a_service_is_no_client_of_another_one(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "unix:///nobody/listens.sock")
    service.ensure(service.socket_path())
    assert listener(service.socket_path()) is not None


@pytest.mark.podman
@pytest.mark.nix
def test_a_sandbox_outlives_the_service_which_comes_back_to_end_it(
    place: Path, numpy_bundle: CachedBundle
) -> None:
    config = SandboxConfig(image="localhost/agentix-test/empty:1", bundle=str(numpy_bundle.path))

    async def use() -> None:
        provider = PodmanProvider()
        with pytest.raises(ImageError):  # there is none yet, but a service
            await provider.create(config)
        import_empty(config.image, place)
        async with provider.session(config) as sandbox:
            end_service(service.socket_path())
            assert await sandbox.remote(probes.echo, 1) == 1
            again = await PodmanProvider().get(sandbox.sandbox_id)
            assert (await again.health()).status == "ok"
            await again.aclose()
            end_service(service.socket_path())

    asyncio.run(use())
    assert [path.name for path in service.socket_path().parent.iterdir()] == ["podman.sock"]


def import_empty(name: str, folder: Path) -> None:
    """Make an image without any file."""
    with tarfile.open(folder / "empty.tar", "w"):
        pass
    command = ["podman", "import", str(folder / "empty.tar"), name]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


@pytest.mark.podman
def test_a_service_that_cannot_start_says_why_on_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "broken.conf").write_text("[containers\n")
    monkeypatch.setenv("CONTAINERS_CONF", str(place / "broken.conf"))
    with pytest.raises(ProviderError, match=r"Podman's service ended: .*broken.conf") as caught:
        service.ensure(service.socket_path())
    assert "\n" not in str(caught.value)
    monkeypatch.delenv("CONTAINERS_CONF")
    assert list(service.socket_path().parent.iterdir()) == []


def test_podman_that_is_not_installed_is_said_to_be_missing(
    place_without_podman: Path, tmp_path: Path
) -> None:
    bundle = str(bundle_that_runs("exit 1", tmp_path))
    with pytest.raises(ProviderError, match=r"Podman is not installed.*CONTAINER_HOST"):
        asyncio.run(PodmanProvider().create(SandboxConfig(image="any", bundle=bundle)))
    assert list(place_without_podman.iterdir()) == []


def test_a_service_that_never_answers_is_ended_and_one_that_is_no_program_named(
    place_without_podman: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "podman"
    program.write_text(
        f"#!/bin/sh\necho waiting >&2\n/bin/sh -c '/bin/sleep 600; exit' {tmp_path}\nexit\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(service, "_START", 1.0)
    with pytest.raises(ProviderError, match="does not answer within 1 s: waiting"):
        service.ensure(service.socket_path())
    eventually(lambda: processes(str(tmp_path)) == [], "all of it ends", within=10)
    program.write_bytes(b"\0" * 100)
    with pytest.raises(ProviderError, match="Podman's service cannot be started"):
        service.ensure(service.socket_path())


@pytest.fixture
def place_without_podman(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="agentix-test-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CONTAINER_HOST", raising=False)
    monkeypatch.setattr(address, "_podman_sockets", lambda: iter(()))
    yield folder / "agentix"
    shutil.rmtree(folder)


def test_the_users_own_service_is_preferred_to_one_of_ours(
    monkeypatch: pytest.MonkeyPatch, place_without_podman: Path
) -> None:
    runs, stale = place_without_podman.parent / "runs", place_without_podman.parent / "stale"
    monkeypatch.setattr(address, "_podman_sockets", lambda: iter((stale, runs)))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(stale))
    assert address.locate("podman").ours
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(runs))
        server.listen()
        assert address.locate("podman") == address.Address("podman", f"unix://{runs}")
        monkeypatch.setenv("CONTAINER_HOST", "unix:///somewhere/else.sock")
        assert address.locate("podman").url == "unix:///somewhere/else.sock"


def test_a_runtime_folder_of_somebody_else_is_not_podmans(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert service._environment()["XDG_RUNTIME_DIR"] == str(tmp_path)
    for other in (tmp_path / "missing", Path("/proc/1/root" if os.getuid() else "/proc/self/exe")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(other))
        assert "XDG_RUNTIME_DIR" not in service._environment()
