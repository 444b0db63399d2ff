"""The main job, for real: build hello-world, deploy it, and call it inside a sandbox.

The task image is made here: one static busybox and nothing else. No Python, no C library.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agentix import SandboxConfig
from agentix.provider.bubblewrap import BubblewrapProvider

HERE = Path(__file__).parent
AGENTIX = Path(sys.executable).with_name("agentix")
sys.path.insert(0, str(HERE / "hello-world"))
from hello_world import greet  # noqa: E402 - an ordinary project, found where it lies


def agentix(*arguments: str) -> str:
    """Run one command as a person would, and return the first line that it prints for scripts."""
    started = time.perf_counter()
    shown = ["agentix", *(os.path.relpath(a) if Path(a).exists() else a for a in arguments)]
    print(f"\n$ {' '.join(shown)}", flush=True)
    done = subprocess.run([str(AGENTIX), *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    print(f"{done.stdout}({time.perf_counter() - started:.2f} s)", flush=True)
    return done.stdout.splitlines()[0]


def busybox_image(bundle: Path, folder: Path) -> Path:
    """Make a root file system of one program, the busybox that every bundle carries."""
    (folder / "bin").mkdir(parents=True)
    shutil.copy(next(bundle.glob("nix/store/*-busybox/bin/busybox")), folder / "bin/busybox")
    (folder / "bin/sh").symlink_to("busybox")
    return folder


async def call(image: Path, bundle: str) -> None:
    """Open a sandbox, call the function in it twice, and say what came back and when."""
    provider = BubblewrapProvider()
    config = SandboxConfig(image=str(image), bundle=bundle)
    started = time.perf_counter()
    async with provider.session(config) as sandbox:
        greeting = await sandbox.remote(greet, "sandbox")
        first = time.perf_counter() - started
        again = time.perf_counter()
        await sandbox.remote(greet, "again")
        second = time.perf_counter() - again
    print(f"  {greeting.text}")
    print(f"  answered by  CPython {greeting.python} on {greeting.libc}")
    print(f"  inside       an image that holds only {', '.join(greeting.image)}")
    print(f"  took         {first:.2f} s from nothing to the first result")
    print(f"               {second * 1e3:.1f} ms for the next one")


def main() -> None:
    """Run the whole chain and show how long each part took."""
    started = time.perf_counter()
    tar = agentix("build", str(HERE / "hello-world"))
    entry = agentix("deploy", "bubblewrap", tar)
    print("\n>>> await sandbox.remote(greet, 'sandbox')", flush=True)
    with tempfile.TemporaryDirectory(prefix="agentix-demo-") as scratch:
        image = busybox_image(Path(entry), Path(scratch) / "image")
        asyncio.run(call(image, entry))
    print(f"\nall of it in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
