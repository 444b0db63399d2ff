"""The light ones of the real projects, as ``make projects`` tries all of them."""

from __future__ import annotations

import asyncio
import importlib
import shutil
from pathlib import Path

import pytest
from own_cache import own_cache

from agentix import SandboxConfig
from agentix.build.build import build_bundle
from agentix.build.lock import load
from agentix.provider.bubblewrap import BubblewrapProvider

pytestmark = [pytest.mark.nix, pytest.mark.bubblewrap, pytest.mark.slow]

REAL = Path(__file__).parents[1] / "projects/real"


@pytest.mark.parametrize("name", ["linted", "packed", "sources"])
def test_a_real_project_answers_from_an_empty_root(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_cache(monkeypatch, tmp_path / "cache")
    monkeypatch.syspath_prepend(tmp_path / name)
    root = Path(shutil.copytree(REAL / name, tmp_path / name))
    bundle = build_bundle(root, output=tmp_path / "out")
    assert "://" not in (root / "bundle.lock").read_text()
    task = importlib.import_module(f"{name}_task")
    (tmp_path / "image").mkdir()

    async def call() -> object:
        config = SandboxConfig(image=str(tmp_path / "image"), bundle=str(bundle.path))
        async with BubblewrapProvider().session(config, timeout=120) as sandbox:
            return await sandbox.remote(task.use)

    assert asyncio.run(call()) == task.EXPECTED
    if name == "sources":
        compiled = {
            release.source.split("-")[0]: release.compiled
            for release in load(root / "bundle.lock").releases
        }
        assert compiled == {"docopt": False, "markupsafe": True, "pyyaml": True}
