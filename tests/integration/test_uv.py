"""Virtual environments of real bundles: what is in them, and what is left when none can be made."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import eventually_async

from agentix import SandboxConfig, SandboxResource
from agentix.errors import ImageError, ProviderError
from agentix.provider.uv import UvProviderConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.bundle import CachedBundle

pytestmark = [pytest.mark.nix]


@pytest.fixture(autouse=True)
def _runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sandboxes leave nothing in their folder."""
    with tempfile.TemporaryDirectory(prefix="ax") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        yield
        assert not Path(short, "agentix").exists() or list(Path(short, "agentix").iterdir()) == []


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv")


@pytest.fixture
def config(numpy_bundle: CachedBundle) -> SandboxConfig:
    return SandboxConfig(image="host", bundle=numpy_bundle.path)


async def test_a_bundles_own_packages_are_there_and_every_creation_says_what_is_not(
    config: SandboxConfig,
    numpy_bundle: CachedBundle,
    cache: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import numpy_task

    provider = UvProviderConfig(cache=cache).to_provider()
    wanted = {package.name: package.version for package in numpy_bundle.manifest.packages}
    code = "import json; from importlib.metadata import distributions as found\n"
    code += (
        "print(json.dumps({each.name.lower().replace('_', '-'): each.version for each in found()}))"
    )
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            async with provider.session(config, timeout=60) as sandbox:
                assert list(await sandbox.remote(numpy_task.solve, 4)) == pytest.approx([1.0] * 4)
                process = await sandbox.remote(numpy_task.process)
                listing = await sandbox.remote(numpy_task.run, [process.executable, "-c", code])
                await sandbox.remote(numpy_task.run, ["sh", "-c", "echo mine >mine"])
        assert json.loads(listing.stdout) == wanted
        said = [record.getMessage() for record in caplog.records]
        assert len([each for each in said if "isolates nothing" in each and "jq" in each]) == 1
    assert process.python.startswith("3.")
    assert Path(process.prefix).parent == cache / "uv"
    assert len(list((cache / "uv").iterdir())) == 1


async def test_tasks_cannot_add_to_what_the_next_ones_get(
    config: SandboxConfig, cache: Path
) -> None:
    async with UvProviderConfig(cache=cache).to_provider().session(config):
        (made,) = (cache / "uv").iterdir()
    everything = [path for path in (made, *made.rglob("*")) if not path.is_symlink()]
    writable = [path for path in everything if path.stat().st_mode & 0o222]
    assert writable == []


async def test_what_the_loader_acts_on_reaches_the_task_and_not_the_runtime(
    config: SandboxConfig, cache: Path
) -> None:
    from numpy_task import run

    hard = {"LD_PRELOAD": "/no/such.so", "PYTHONHOME": "/no/such", "odd.name": "x\n y"}
    provider = UvProviderConfig(cache=cache).to_provider()
    async with provider.session(config.model_copy(update={"env": hard})) as sandbox:
        printed = (await sandbox.remote(run, ["/usr/bin/env", "-0"])).stdout
    found = dict(entry.split("=", 1) for entry in printed.split("\0")[:-1])
    assert {name: found.get(name) for name in hard} == hard
    assert found.keys() == {"PATH", "HOME", *hard}


async def test_an_environment_whose_interpreter_is_gone_is_made_anew(
    config: SandboxConfig, cache: Path
) -> None:
    provider = UvProviderConfig(cache=cache).to_provider()
    async with provider.session(config):
        (made,) = (cache / "uv").iterdir()
    made.joinpath("bin").chmod(0o755)
    made.joinpath("bin/python").unlink()
    made.joinpath("bin/python").symlink_to("/no/such/python")
    async with provider.session(config) as sandbox:
        assert (await sandbox.health()).status == "ok"


async def test_packages_that_cannot_be_had_are_one_line_and_leave_nothing(
    config: SandboxConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    provider = UvProviderConfig(cache=tmp_path / "cache").to_provider()
    for _ in range(5):
        with pytest.raises(
            ProviderError, match=r"packages of bundle numpy-task .*: uv says: "
        ) as it:
            await provider.create(config)
        assert "\n" not in str(it.value)
        assert not any(sign in str(it.value) for sign in "│╰▶")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
    assert list(scratch.iterdir()) == []


async def test_a_creation_cancelled_while_uv_works_ends_uv_and_leaves_nothing(
    config: SandboxConfig, tmp_path: Path
) -> None:
    slow, started = tmp_path / "uv", tmp_path / "started"
    slow.write_text(f"#!/bin/sh\necho $$ >{started}\nexec sleep 1000\n")
    slow.chmod(0o755)
    provider = UvProviderConfig(cache=tmp_path / "cache", program=slow).to_provider()
    creation = asyncio.create_task(provider.create(config))
    await eventually_async(lambda: started.exists() and started.read_text(), "uv is at work")
    creation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creation
    assert not Path("/proc", started.read_text().strip()).exists()
    assert list((tmp_path / "cache/staging").iterdir()) == []


async def test_a_python_that_is_not_there_is_named(config: SandboxConfig, tmp_path: Path) -> None:
    choices = UvProviderConfig(cache=tmp_path, python=tmp_path / "python3.99")
    with pytest.raises(ProviderError, match=r"which needs Python .*python3\.99"):
        await choices.to_provider().create(config)


async def test_other_images_and_limits_are_refused(config: SandboxConfig) -> None:
    provider = UvProviderConfig().to_provider()
    with pytest.raises(ImageError, match="image 'debian:12'"):
        await provider.create(config.model_copy(update={"image": "debian:12"}))
    limits = SandboxResource(memory="1g")
    with pytest.raises(ProviderError, match="uv cannot limit memory"):
        await provider.create(config.model_copy(update={"resource": limits}))


WITHOUT = """
    import asyncio, sys
    from pathlib import Path
    from agentix import SandboxConfig
    from agentix.provider.uv import UvProviderConfig
    if sys.argv[3] == "hidden":
        sys.modules["uv"] = None
    async def main():
        provider = UvProviderConfig(cache=Path(sys.argv[1])).to_provider()
        async with provider.session(SandboxConfig(image="host", bundle=sys.argv[2])) as sandbox:
            print((await sandbox.health()).status)
    try:
        asyncio.run(main())
    except Exception as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("packaged", "said"),
    [("packaged", "ok"), ("hidden", "install it next to agentix: pip install uv")],
)
def test_uv_is_found_without_path_or_it_says_how_to_get_it(
    packaged: str, said: str, cache: Path, numpy_bundle: CachedBundle
) -> None:
    command = [sys.executable, "-c", textwrap.dedent(WITHOUT), str(cache), str(numpy_bundle.path)]
    result = subprocess.run(
        [*command, packaged],
        env={"PATH": "/nonexistent", "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"]},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.stdout.strip().endswith(said), result.stderr
