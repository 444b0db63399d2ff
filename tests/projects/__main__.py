"""Build real projects, call each in a sandbox whose image is empty, and tell what that cost.

    python tests/projects [name ...]

A line each: seconds to lock, fetch, build and write the first time, to build again after an edit,
and for the first call; the size of the bundle; the most memory that any process took. The exit code
says whether every answer was right. Some of them are hundreds of megabytes.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agentix import SandboxConfig
from agentix.build.build import build_bundle
from agentix.provider.bubblewrap import BubblewrapProvider

sys.path[0] = str(Path(__file__).parents[1])

REAL = Path(__file__).parent / "real"
COLUMNS = ("project", "lock", "fetch", "build", "write", "again", "call", "MB", "MiB", "")
LONGEST = 3600.0  # seconds for one project, on whatever network


def main(names: list[str]) -> int:
    """Try the projects *names*, or all; return how many failed."""
    widths = "{:10} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}  {}"
    print(widths.format(*COLUMNS), flush=True)
    failed = 0
    for name in names or sorted(path.name for path in REAL.iterdir()):
        command = [sys.executable, __file__, "--one", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LONGEST)
        if done.returncode:
            failed += 1
            print(widths.format(name, *[""] * 8, "failed, see above"), flush=True)
            continue
        print(widths.format(*json.loads(done.stdout.splitlines()[-1])), flush=True)
    return failed


def one(name: str) -> list[str]:
    """Build and call the project *name*; return its line."""
    from heard import Heard

    with tempfile.TemporaryDirectory(prefix="agentix-projects-") as scratch:
        # As far from the runtime as the original, which lies in this repository.
        root = Path(shutil.copytree(REAL / name, Path(scratch, name)))
        os.environ.setdefault("AGENTIX_CACHE_DIR", str(Path(scratch, "cache")))
        heard = Heard()
        first = build_bundle(root, output=Path(scratch, "out"), progress=heard)
        module = root / f"{name}_task.py"
        module.write_text(module.read_text() + "\n# edited\n")
        start = time.monotonic()
        again = build_bundle(root, output=Path(scratch, "out"))
        rebuilt = time.monotonic() - start
        sys.path.insert(0, str(root))
        task = importlib.import_module(f"{name}_task")
        answer, called = asyncio.run(call(again.path, Path(scratch, "image"), task.use))
    if answer != task.EXPECTED:
        sys.exit(f"{name} answers {answer}, not {task.EXPECTED}")
    peak = max(resource.getrusage(who).ru_maxrss for who in (0, resource.RUSAGE_CHILDREN))
    times = [first.timings.get(key, 0.0) for key in ("lock", "fetch", "build", "write")]
    return [
        name,
        *(f"{value:.1f}" for value in (*times, rebuilt, called)),
        f"{again.size / 1e6:.0f}",
        f"{peak / 1024:.0f}",
        "; ".join(heard.warnings),
    ]


async def call(bundle: Path, image: Path, function: Any) -> tuple[Any, float]:
    """Return what *function* says in a sandbox of an empty *image*, and how long that took."""
    image.mkdir()
    config = SandboxConfig(image=str(image), bundle=str(bundle))
    async with BubblewrapProvider().session(config, timeout=120) as sandbox:
        start = time.monotonic()
        answer = await sandbox.remote(function)
        return answer, time.monotonic() - start


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--one", name]:
            print(json.dumps(one(name)))
        case names:
            sys.exit(main(names))
