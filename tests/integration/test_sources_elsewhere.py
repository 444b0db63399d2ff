"""Dependencies that no index has, each from another place: built, and called from an empty root."""

from __future__ import annotations

import asyncio
import importlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from mirror.server import serving

from agentix import SandboxConfig
from agentix.build.build import build_bundle
from agentix.provider.bubblewrap import BubblewrapProvider

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.server import Server

pytestmark = [pytest.mark.nix, pytest.mark.bubblewrap, pytest.mark.slow]

SETUP = "from setuptools import setup\nsetup(name='{0}', version='1.0', py_modules=['{0}'])\n"
BY_SCM = """
[project]
name = "committed"
dynamic = ["version"]

[build-system]
requires = ["setuptools-scm"]
build-backend = "setuptools.build_meta"

[tool.setuptools_scm]
root = "../.."
"""
PROJECT = """
[project]
name = "elsewhere-task"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["committed", "zipped", "ready", "packed"]

[project.optional-dependencies]
old = ["packed==1.0"]
new = ["packed==2.0"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.uv]
find-links = ["../files"]
conflicts = [[{{ extra = "old" }}, {{ extra = "new" }}]]

[tool.uv.sources]
committed = {{ git = "{repository}", subdirectory = "libs/committed", tag = "v1.4" }}
zipped = {{ url = "{server}/archive/v1.zip", subdirectory = "inner/lib" }}
ready = {{ url = "{server}/ready-1.0-py3-none-any.whl" }}
"""
TASK = '''
def use() -> dict[str, list[str]]:
    """Import what came from everywhere, and say what it says of itself and is said of it."""
    from importlib import import_module, metadata

    names = ("committed", "zipped", "ready", "packed")
    return {name: [import_module(name).FROM, metadata.version(name)] for name in names}
'''


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, env=clean, timeout=60)


def zipped(files: dict[str, str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return stream.getvalue()


def offer(server: Server) -> str:
    """Have *server* give an archive with a project deep in it, and a wheel; return where."""
    top = {"setup.py": SETUP.format("zipped"), "zipped.py": "FROM = 'archive'\n"}
    info = "ready-1.0.dist-info"
    wheel = {
        "ready.py": "FROM = 'wheel'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: ready\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*wheel, f"{info}/RECORD"])
    place = f"/{uuid4()}"  # uv keeps what other servers had at the same port
    inner = {f"top/inner/lib/{name}": text for name, text in top.items()}
    server.offer(f"{place}/archive/v1.zip", zipped(inner))
    server.offer(f"{place}/ready-1.0-py3-none-any.whl", zipped(wheel))
    return f"{server.address}{place}"


def test_what_lies_in_git_at_an_address_or_in_a_folder_is_built_and_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    library = tmp_path / "repository/libs/committed"
    library.mkdir(parents=True)
    (library / "pyproject.toml").write_text(BY_SCM)
    (library / "committed.py").write_text("FROM = 'commit'\n")
    git(tmp_path / "repository", "init", "--quiet")
    git(tmp_path / "repository", "add", ".")
    git(tmp_path / "repository", "commit", "--quiet", "--message", "all")
    git(tmp_path / "repository", "tag", "v1.4")
    (tmp_path / "files").mkdir()
    for version in ("1.0", "2.0"):  # no pyproject.toml, as of old
        setup = SETUP.format("packed").replace("1.0", version)
        said = f"Metadata-Version: 2.1\nName: packed\nVersion: {version}\n"
        texts = {"PKG-INFO": said, "setup.py": setup, "packed.py": "FROM = 'folder'\n"}
        with tarfile.open(tmp_path / f"files/packed-{version}.tar.gz", "w:gz") as archive:
            for name, text in texts.items():
                member = tarfile.TarInfo(f"packed-{version}/{name}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
    root = tmp_path / "task"
    root.mkdir()
    (root / "elsewhere_task.py").write_text(TASK)
    with serving() as server:
        text = PROJECT.format(repository=(tmp_path / "repository").as_uri(), server=offer(server))
        (root / "pyproject.toml").write_text(text)
        bundle = build_bundle(root, output=tmp_path)
    assert "://" not in (root / "bundle.lock").read_text()
    monkeypatch.syspath_prepend(root)
    monkeypatch.delitem(sys.modules, "elsewhere_task", raising=False)
    task = importlib.import_module("elsewhere_task")
    (tmp_path / "image").mkdir()

    async def call() -> object:
        config = SandboxConfig(image=str(tmp_path / "image"), bundle=str(bundle.path))
        async with BubblewrapProvider().session(config, timeout=60) as sandbox:
            return await sandbox.remote(task.use)

    assert asyncio.run(call()) == {
        "committed": ["commit", "1.4"],
        "zipped": ["archive", "1.0"],
        "ready": ["wheel", "1.0"],
        "packed": ["folder", "2.0"],
    }
