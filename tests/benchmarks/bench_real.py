"""What real projects cost: fetching beside pip, and a framework of 600 MB, built again and weighed.

Takes a network, and minutes where the artifacts are not in the Nix store yet.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench_build import AGENTIX, new_store, run, timed
from row import Row

from agentix.build.lock import load
from agentix.platforms import current

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECTS = Path(__file__).parents[1] / "projects"
AGAIN, PEAK = 5, 8  # the columns of a project's line


def rows() -> Iterator[Row]:
    """Measure and yield one row after the other."""
    with tempfile.TemporaryDirectory(prefix="agentix-bench-") as scratch:
        ours, pips = fetch_and_download(Path(scratch))
    yield Row("fetch, all cold", ours, "MB/s", 3, pips, "pip download", True, at_least=True)
    said = run(sys.executable, PROJECTS, "--one", "jaxed")
    line = json.loads(said.splitlines()[-1])
    yield Row("jax, built after one edited file", float(line[AGAIN]), "s", 4)
    yield Row("jax, the largest process of any step", float(line[PEAK]), "MiB", 600)


def fetch_and_download(scratch: Path) -> tuple[float, float]:
    """Return how many MB a second arrive by ``agentix fetch``, and of the same wheels by pip."""
    root = Path(shutil.copytree(PROJECTS / "real/tables", scratch / "tables"))
    run(AGENTIX, "lock", root)
    before = os.environ.get("AGENTIX_CACHE_DIR")
    os.environ["AGENTIX_CACHE_DIR"] = str(scratch / "cache")
    try:
        with new_store(scratch):
            command = (AGENTIX, "fetch", root, "--format", "json")
            seconds, said = timed(lambda: run(*command))
    finally:
        del os.environ["AGENTIX_CACHE_DIR"]
        if before is not None:
            os.environ["AGENTIX_CACHE_DIR"] = before
    ours = json.loads(said)["size"] / 1e6 / seconds
    shutil.rmtree(scratch / "store")

    lock = load(root / "bundle.lock")
    wheels = [lock.artifacts[name] for name in lock.platforms[current().name].wheels]
    pins = [f"{wheel.package}=={wheel.version}" for wheel in wheels]
    options = ("--quiet", "--no-deps", "--no-cache-dir", "--dest", scratch / "wheels")
    python = ("--python-version", lock.python, "--only-binary", ":all:")
    pip = (sys.executable, "-m", "pip", "download", *options, *python, *pins)
    seconds, _ = timed(lambda: run(*pip))
    size = sum(file.stat().st_size for file in (scratch / "wheels").iterdir())
    return ours, size / 1e6 / seconds
