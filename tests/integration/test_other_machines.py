"""Bundles for arm64, made here without emulation, and called where something emulates arm64."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from emulation import NoEmulatorError, run_emulated
from images import image
from images.bundled import PROJECT, numpy_task
from images.debian import ImagesUnavailable

from agentix import platforms

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.bundle import CachedBundle

pytestmark = [pytest.mark.nix, pytest.mark.bubblewrap, pytest.mark.slow]
FOREIGN = "linux/arm64"
CALLS = """
import asyncio, json, sys
from agentix import SandboxConfig
from agentix.errors import AgentixError
from agentix.provider.bubblewrap import BubblewrapProvider, BubblewrapProviderConfig
import numpy_task as task

async def main(image, bundle):
    config = SandboxConfig(image=image, bundle=bundle, platform="linux/arm64")
    provider = BubblewrapProvider(BubblewrapProviderConfig(start_timeout=200))
    async with provider.session(config) as sandbox:
        process = await sandbox.remote(task.process)
        return {
            "solved": (await sandbox.remote(task.solve, 3)).round(6).tolist(),
            "libc": process.libc,
            "machine": (await sandbox.remote(task.run, ["/bin/busybox", "uname", "-m"])).stdout,
            "tool": (await sandbox.remote(task.run, ["jq", "-n", "40 + 2"])).stdout,
            "child": (await sandbox.remote(task.own_child)).stdout.split()[0],
            "libraries": await sandbox.remote(task.libraries),
        }

try:
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
except AgentixError as error:
    print(json.dumps(str(error)))
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> CachedBundle:
    """A bundle with a native wheel and a system tool, built on a machine that cannot run it."""
    if platforms.current().name == FOREIGN:
        pytest.skip("to this machine, arm64 is nothing foreign")
    return numpy_task(tmp_path_factory.mktemp("arm64"), FOREIGN)


def call(bundle: CachedBundle, root: Path, *, emulated: bool) -> object:
    """Return what calls into a sandbox of *bundle* gave, or why there is none."""
    command = (sys.executable, "-c", CALLS, str(root), str(bundle.path))
    try:
        said = run_emulated(*command, env={"PYTHONPATH": str(PROJECT)}, emulated=emulated)
    except NoEmulatorError as error:
        pytest.skip(f"{error}")
    return json.loads(said)


def test_a_bundle_built_here_for_arm64_runs_there(bundle: CachedBundle) -> None:
    try:
        root = image("busybox", "aarch64").rootfs
    except ImagesUnavailable as error:
        pytest.skip(f"task images cannot be made here: {error}")
    found = call(bundle, root, emulated=True)
    assert isinstance(found, dict), found
    # The emulator itself is not of the bundle, and its kernel is this one.
    assert [path for path in found.pop("libraries") if "qemu" not in path] == []
    assert found == {
        "solved": [1.0, 1.0, 1.0],
        "libc": bundle.manifest.libc,
        "machine": "aarch64\n",
        "tool": "42\n",
        "child": "6",
    }


def test_it_is_refused_in_a_line_that_helps_where_nothing_emulates_arm64(
    bundle: CachedBundle, tmp_path: Path
) -> None:
    said = call(bundle, tmp_path, emulated=False)
    assert isinstance(said, str)
    for words in ("linux/arm64", "linux/amd64", "--platform linux/amd64", "binfmt_misc"):
        assert words in said
    assert "\n" not in said
