"""What no index has comes to another machine from where the project itself says that it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mirror.offers import content

from agentix import nix
from agentix.build.fetch import Fetched, Needs, fetch
from agentix.build.lock.locking import lock_project
from agentix.errors import FetchError

if TYPE_CHECKING:
    from mirror.server import Server

    from agentix.build.artifact import Artifact

pytestmark = pytest.mark.nix

SETUP = "from setuptools import setup\nsetup(name='{0}', version='1.0', py_modules=['{0}'])\n"


def sdist(name: str) -> bytes:
    stream = BytesIO()
    texts = {"setup.py": SETUP.format(name), f"{name}.py": content().hex()}
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for file, text in texts.items():
            member = tarfile.TarInfo(f"{name}-1.0/{file}")
            member.size = len(text)
            tar.addfile(member, BytesIO(text.encode()))
    return stream.getvalue()


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, env=clean)


@pytest.fixture
def project(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a dependency of each kind that is built from sources."""
    monkeypatch.delenv("UV_NO_CONFIG")  # what the project says counts
    listed, dep, app = (tmp_path / name for name in ("listed", "tree_dep", "app"))
    for folder in (listed, dep, app):
        folder.mkdir()
    (listed / "listed_dep-1.0.tar.gz").write_bytes(sdist("listed_dep"))
    server.offer("/v1.tar.gz", sdist("placed_dep"))
    (dep / "setup.py").write_text(SETUP.format("tree_dep"))
    (dep / "tree_dep.py").write_text(content().hex())
    (dep / "run").symlink_to("setup.py")
    git(dep, "init", "--quiet")
    git(dep, "add", ".")
    git(dep, "commit", "--quiet", "--message", "all")
    (app / "setup.py").write_text("")
    (app / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1.0"\nrequires-python = ">=3.11"\n'
        'dependencies = ["listed-dep", "placed-dep", "tree-dep"]\n'
        '[tool.uv]\nfind-links = ["../listed"]\n[tool.uv.sources]\n'
        f'placed-dep = {{ url = "{server.address}/v1.tar.gz" }}\n'
        f'tree-dep = {{ git = "{dep.as_uri()}" }}\n'
    )
    return app


def locked_sources(project: Path) -> dict[str, Artifact]:
    lock = lock_project(project, python="3.11")
    assert "://" not in lock.dumps()
    return {lock.artifacts[r.source].package: lock.artifacts[r.source] for r in lock.releases}


def bring(sources: dict[str, Artifact], project: Path, *, offline: bool = False) -> Fetched:
    needed = Needs(files=tuple(sources.values()), programs=())
    return fetch(needed, project=project, python="3.11", offline=offline)


def test_sources_come_from_where_the_project_says(project: Path, tmp_path: Path) -> None:
    sources = locked_sources(project)
    assert sorted(sources) == ["listed-dep", "placed-dep", "tree-dep"]
    shutil.rmtree(tmp_path / "cache")  # as on another machine
    git(tmp_path / "tree_dep", "commit", "--quiet", "--allow-empty", "--message", "later")
    assert bring(sources, project).files == 3
    tree = nix.find().real(sources["tree-dep"].store_path)
    assert {path.name for path in tree.iterdir()} == {"run", "setup.py", "tree_dep.py"}
    assert (tree / "run").readlink() == Path("setup.py")
    assert bring(sources, project, offline=True) == Fetched(0, 0, 3)
    assert not [p for p in (tmp_path / "cache/downloads").iterdir() if p.is_dir()]


def test_what_was_locked_here_is_not_brought_twice(project: Path, server: Server) -> None:
    sources = locked_sources(project)
    asked = len(server.requests)
    assert bring(sources, project, offline=True).files == 0
    assert len(server.requests) == asked


def test_what_the_project_names_no_more_is_one_line(project: Path, tmp_path: Path) -> None:
    sources = locked_sources(project)
    shutil.rmtree(tmp_path / "cache")
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(text.replace(', "tree-dep"', ""))
    with pytest.raises(FetchError, match=r"says any more where tree-dep 1\.0 comes from; run"):
        bring(sources, project)


def test_another_tree_than_the_locked_one_is_not_added(project: Path, tmp_path: Path) -> None:
    sources = locked_sources(project)
    shutil.rmtree(tmp_path / "cache")
    other = sources["tree-dep"].model_copy(update={"sha256": "0" * 64})
    with pytest.raises(FetchError, match=r"of tree-dep is not what was locked: expected NAR"):
        bring({"tree-dep": other}, project)
    assert not any((tmp_path / "cache/downloads" / ("0" * 64)).glob("*"))
