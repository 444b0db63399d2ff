"""What building, exporting and deploying hello-world cost, in a clone of this repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from row import Row

from agentix.build.fetch import needs, total_size
from agentix.build.lock import Lock, load
from agentix.platforms import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPOSITORY = Path(__file__).parents[2]
AGENTIX = Path(sys.executable).with_name("agentix")
UV = Path(sys.executable).with_name("uv")
T = TypeVar("T")


def rows() -> Iterator[Row]:
    """Measure and yield one row after the other."""
    with project() as root:
        lock = load(root / "bundle.lock")
        installed = uv_install(lock, root)
        yield Row("download of hello-world", download(lock), "MB", 25)
        with new_store(root.parents[2]):
            run(AGENTIX, "fetch", root)
            seconds, built = timed(lambda: build(root, "--offline"))
        yield Row("cold build, artifacts fetched", seconds, "s", 15, installed, "uv pip install")
        build(root)
        yield Row("the bundle's tar", built["size"] / 1e6, "MB", 75)
        edits = [edit(root) for _ in range(3)]
        yield Row("build after one edited file", median(edits), "s", 2.5)
        same = [timed(lambda: build(root))[0] for _ in range(5)]
        yield Row("build with nothing changed", median(same), "s", 0.4)
        tar = Path(built["bundle"])
        ours = median(deploy(tar, again=False) for _ in range(5))
        bare = median(untar(tar) for _ in range(5))
        yield Row("deploy: verify and unpack", ours, "s", 1.5, bare, "tar -xf", relative=True)
        yield Row("the same, as a whole command", deploy_command(tar), "s")
        yield Row("deploy of a second one that shares", *second(root, tar))


@contextmanager
def project() -> Iterator[Path]:
    """Clone the repository and yield its hello-world: what is measured may be edited."""
    with tempfile.TemporaryDirectory(prefix="agentix-bench-") as scratch:
        clone = Path(scratch, "clone")
        run("git", "clone", "--quiet", REPOSITORY, clone)
        yield clone / "examples/hello-world"


@contextmanager
def new_store(scratch: Path) -> Iterator[None]:
    """Let Nix work in a store of its own, in which nothing has been built."""
    os.environ["NIX_REMOTE"] = str(scratch / "store")
    try:
        yield
    finally:
        del os.environ["NIX_REMOTE"]
        run("chmod", "-R", "u+w", scratch / "store")


def run(*words: object) -> str:
    """Run a command to its end and return what it printed."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{words[0]} failed: {done.stderr}")
    return done.stdout


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that *action* took, and its result."""
    started = time.perf_counter()
    result = action()
    return time.perf_counter() - started, result


def build(root: Path, *options: str) -> dict[str, Any]:
    """Build by the command line, as a user does."""
    answer: dict[str, Any] = json.loads(run(AGENTIX, "build", root, "--format", "json", *options))
    return answer


def edit(root: Path) -> float:
    """Change one source file and build again."""
    with (root / "hello_world.py").open("a") as file:
        file.write(f"# {uuid.uuid4()}\n")
    return timed(lambda: build(root))[0]


def download(lock: Lock) -> float:
    """Return how many MB a first build of *lock* fetches."""
    platform = current().name
    return total_size(needs(lock, platform, platform).artifacts()) / 1e6


def uv_install(lock: Lock, root: Path) -> float:
    """Return how long uv takes to install the same wheels into a new environment, cache warm."""
    wheels = lock.platforms[current().name].wheels
    pins = [f"{lock.artifacts[w].package}=={lock.artifacts[w].version}" for w in wheels]
    times = []
    for _ in range(3):
        shutil.rmtree(root / ".bench", ignore_errors=True)
        run(UV, "venv", "--quiet", "--python", sys.executable, root / ".bench")
        into = ["--python", root / ".bench/bin/python", "--link-mode", "copy", "--compile-bytecode"]
        install = (UV, "pip", "install", "--quiet", "--no-deps", *into, *pins)
        times.append(timed(lambda words=install: run(*words))[0])  # type: ignore[misc]
    shutil.rmtree(root / ".bench")
    return min(times)


def deploy(tar: Path, *, again: bool) -> float:
    """Return how long the library takes to bring *tar* into a cache that lacks it."""
    from agentix.bundle import BundleCache

    with tempfile.TemporaryDirectory(prefix="agentix-bench-", dir=tar.parent) as folder:
        return timed(lambda: BundleCache(Path(folder)).deploy(tar))[0]


def second(root: Path, tar: Path) -> tuple[float, str, float, None, str]:
    """Return how long a bundle that differs in one file takes where *tar* is deployed."""
    from agentix.bundle import BundleCache

    edit(root)
    other = tar.with_name("second.bundle.tar")
    run(AGENTIX, "build", root, "--output", other)
    with tempfile.TemporaryDirectory(prefix="agentix-bench-", dir=tar.parent) as folder:
        cache = BundleCache(Path(folder))
        cache.deploy(tar)
        before = shutil.disk_usage(folder).used
        seconds, _ = timed(lambda: cache.deploy(other))
        more = shutil.disk_usage(folder).used - before
    return seconds, "s", 0.5, None, f"{more / 1e6:.1f} MB more on the disk"


def deploy_command(tar: Path) -> float:
    """Return how long ``agentix deploy`` takes, interpreter start included."""
    with tempfile.TemporaryDirectory(prefix="agentix-bench-", dir=tar.parent) as folder:
        environment = os.environ | {"AGENTIX_CACHE_DIR": folder}
        command = [str(AGENTIX), "deploy", "bubblewrap", str(tar)]
        return timed(lambda: subprocess.run(command, env=environment, capture_output=True))[0]


def untar(tar: Path) -> float:
    """Return how long tar takes to unpack the same file, verifying nothing."""
    folder = Path(tempfile.mkdtemp(prefix="agentix-bench-", dir=tar.parent))
    try:
        return timed(lambda: run("tar", "-xf", tar, "-C", folder))[0]
    finally:
        run("chmod", "-R", "u+w", folder)
        shutil.rmtree(folder)
