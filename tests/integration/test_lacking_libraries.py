"""A wheel that counts on a library of its author's machine: named after the build, then found."""

from __future__ import annotations

import asyncio
import importlib
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from heard import Heard
from images.debian import unpack
from own_cache import own_cache

from agentix import SandboxConfig, nix, platforms
from agentix.build.build import build_bundle
from agentix.build.fetch import Needs, fetch
from agentix.build.lock import load
from agentix.provider.bubblewrap import BubblewrapProvider

if TYPE_CHECKING:
    from agentix.build.built import BuiltBundle

pytestmark = [pytest.mark.nix, pytest.mark.bubblewrap, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples/hello-world"
PROJECT = """
[project]
name = "lacking-task"
version = "1.0"
requires-python = ">=3.11,<3.12"
dependencies = ["half"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.uv]
find-links = ["../files"]
"""
DECLARED = '\n[tool.agentix]\nsystem = ["libonig5"]\n'
MODULE = '''
def use() -> str:
    """Load the wheel's library from where its module really is, as many packages do."""
    import ctypes
    import os

    import half

    folder = os.path.dirname(os.path.realpath(half.__file__))
    try:
        library = ctypes.CDLL(os.path.join(folder, "libjq.so.1"))
    except OSError as error:
        return str(error)
    return "loaded" if library.jq_init else "empty"
'''
INFO = {
    "METADATA": "Metadata-Version: 2.1\nName: half\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that depends on half of a Debian package: a library without those it needs."""
    lock = load(EXAMPLE / "bundle.lock")
    files = (lock.artifacts[file] for file in lock.platforms[platforms.current().name].system)
    (deb,) = (file for file in files if file.package == "libjq1")
    fetch(Needs((deb,), ()), project=EXAMPLE, python=lock.python)
    (tmp_path / "tree").mkdir()
    unpack([nix.find().real(deb.store_path)], tmp_path / "tree")
    library = next((tmp_path / "tree").glob("usr/lib/*/libjq.so.1")).resolve()
    (tmp_path / "files").mkdir()
    with zipfile.ZipFile(tmp_path / "files/half-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("half/__init__.py", "")
        wheel.write(library, "half/libjq.so.1")
        names = [info.filename for info in wheel.infolist()]
        for name, text in INFO.items():
            wheel.writestr(f"half-1.0.dist-info/{name}", text)
        names += [f"half-1.0.dist-info/{name}" for name in (*INFO, "RECORD")]
        wheel.writestr("half-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in names))
    root = tmp_path / "task"
    root.mkdir()
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "lacking_task.py").write_text(MODULE)
    (tmp_path / "image").mkdir()
    own_cache(monkeypatch, tmp_path / "cache")
    monkeypatch.syspath_prepend(root)
    monkeypatch.delenv("CI", raising=False)  # where nothing is locked anew
    return root


def use(root: Path, bundle: BuiltBundle) -> str:
    task = importlib.import_module("lacking_task")

    async def call() -> str:
        config = SandboxConfig(image=str(root.parent / "image"), bundle=str(bundle.path))
        async with BubblewrapProvider().session(config, timeout=120) as sandbox:
            answer: str = await sandbox.remote(task.use)
            return answer

    return asyncio.run(call())


def test_a_library_that_is_lacking_is_named_with_its_package_and_found_once_that_is_declared(
    project: Path,
) -> None:
    heard = Heard()
    bundle = build_bundle(project, output=project.parent, progress=heard)
    assert heard.warnings == [
        "half-1.0: half/libjq.so.1 needs libonig.so.5, which nothing in the bundle has; "
        'add it: [tool.agentix] system = ["libonig5"]'
    ]
    assert use(project, bundle).startswith("libonig.so.5: cannot open shared object file")
    with (project / "pyproject.toml").open("a") as file:
        file.write(DECLARED)
    shutil.rmtree(project.parent / "image")
    (project.parent / "image").mkdir()
    heard = Heard()
    bundle = build_bundle(project, output=project.parent, progress=heard)
    assert heard.warnings == []
    assert use(project, bundle) == "loaded"
    names = [path.path.name[33:] for path in nix.closure(bundle.store_path)]
    assert "half-1.0" not in names, "the bundle holds the wheel twice"
