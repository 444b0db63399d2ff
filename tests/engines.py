"""The engines that tests run containers with.

Docker is the machine's. Podman is started for the tests, with a store of its own that is gone
afterwards: as root where root runs the tests, else as an ordinary user's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import docker
import pytest
from patience import eventually

from agentix.provider.docker import DockerProviderConfig, service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.progress import Progress
    from agentix.provider.docker import DockerProvider

ENGINES = [
    pytest.param("docker", marks=pytest.mark.docker),
    pytest.param("podman", marks=pytest.mark.podman),
]
_BRIDGE = "cni-podman0"
_CLIENT = {"CONTAINER_HOST", "CONTAINER_CONNECTION"}
"""What makes of the program podman a client, which has no commands for files."""

_FORGET = """
grep -F " $1/" /proc/mounts | cut -d " " -f 2 | sort -r | xargs -r umount
rm -rf "$1"
"""


@dataclass(frozen=True, slots=True)
class EngineUnderTest:
    """An engine, with the SDK's client of it, and the provider that uses it."""

    kind: Literal["docker", "podman"]
    client: docker.DockerClient

    @property
    def rootless(self) -> bool:
        """Whether it runs as an ordinary user."""
        return bool(self.client.info().get("Rootless"))

    @property
    def limits(self) -> bool:
        """Whether it can limit anything: an ordinary user may not on cgroup v1."""
        return not (self.rootless and self.client.info()["CgroupVersion"] == "1")

    @property
    def gains_nothing(self) -> bool:
        """Whether it runs with no_new_privs, as within bubblewrap; its containers inherit that."""
        variable = {"docker": "DOCKER_HOST", "podman": "CONTAINER_HOST"}[self.kind]
        url = os.environ.get(variable, "unix:///var/run/docker.sock")
        status = Path(f"/proc/{listener(Path(url.removeprefix('unix://')))}/status")
        return status.exists() and "NoNewPrivs:\t1\n" in status.read_text()

    def provider(self, *, progress: Progress | None = None, **choices: object) -> DockerProvider:
        """Return a provider on this engine."""
        config = DockerProviderConfig.model_validate({"container_engine": self.kind, **choices})
        if progress is None:
            return config.to_provider()
        return type(config.to_provider())(config, progress=progress)

    def inspect(self, sandbox_id: str) -> dict[str, Any]:
        """Return what the engine knows of a sandbox's container."""
        found: dict[str, Any] = self.client.api.inspect_container(f"agentix-{sandbox_id}")
        return found


@contextlib.contextmanager
def docker_engine() -> Iterator[EngineUnderTest]:
    """Yield the machine's Docker."""
    client = docker.from_env()
    try:
        yield EngineUnderTest("docker", client)
    finally:
        client.close()


@contextlib.contextmanager
def podman_engine() -> Iterator[EngineUnderTest]:
    """Yield a Podman whose images and containers nobody else sees, and remove all of it."""
    folder = Path(tempfile.mkdtemp(prefix="agentix-podman-"))
    had_bridge = Path("/sys/class/net", _BRIDGE).exists()
    path = folder / "podman.sock"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in podman_environment(folder).items():
            patch.setenv(name, value)
        try:
            service.ensure(path, idle=900)
            patch.setenv("CONTAINER_HOST", f"unix://{path}")
            client = docker.DockerClient(f"unix://{path}", version="1.41", timeout=60)
            try:
                yield EngineUnderTest("podman", client)
            finally:
                client.close()
        finally:
            end_service(path)
            forget(folder)
            if not had_bridge:
                _remove_bridge()


def podman_environment(folder: Path) -> dict[str, str]:
    """Return the environment that makes Podman keep everything in *folder*."""
    storage, registries = folder / "storage.conf", folder / "registries.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/store"\nrunroot = "{folder}/run"\n'
        f'rootless_storage_path = "{folder}/store"\n'
    )
    # As Docker has it: registries on loopback need no TLS.
    registries.write_text('[[registry]]\nlocation = "127.0.0.1"\ninsecure = true\n')
    return {
        "CONTAINERS_STORAGE_CONF": str(storage),
        "CONTAINERS_REGISTRIES_CONF": str(registries),
    }


def listener(path: Path) -> int | None:
    """Return the process that listens at *path*, or None."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return None
        answer = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", answer)[0])


def end_service(path: Path) -> None:
    """End the service at *path*, if there is one."""
    if (pid := listener(path)) is not None:
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not Path(f"/proc/{pid}").exists(), "Podman's service ends", within=30)


def forget(folder: Path) -> None:
    """Remove a Podman's files, which belong to users of its own where it is an ordinary user's."""
    if os.getuid() == 0:
        eventually(lambda: _unmount(folder), f"nothing is mounted in {folder}", within=30)
    else:
        local = {name: value for name, value in os.environ.items() if name not in _CLIENT}
        command = ["podman", "unshare", "sh", "-c", _FORGET, "sh", str(folder)]
        subprocess.run(command, check=True, timeout=60, env=local)
    shutil.rmtree(folder, ignore_errors=True)
    assert not folder.exists()


def _unmount(folder: Path) -> bool:
    """Unmount what is mounted in *folder*, as Podman itself may do, too; say whether all is."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    ours = [mount for mount in reversed(mounts) if mount.startswith(f"{folder}/")]
    for mount in ours:
        subprocess.run(["umount", mount], check=False, capture_output=True, timeout=20)
    return not ours


def _remove_bridge() -> None:
    """Remove the link that containers had in common, unless somebody else is on it by now."""
    with contextlib.suppress(OSError):
        if not list(Path("/sys/class/net", _BRIDGE, "brif").iterdir()) and shutil.which("ip"):
            subprocess.run(["ip", "link", "delete", _BRIDGE], check=False, timeout=20)
