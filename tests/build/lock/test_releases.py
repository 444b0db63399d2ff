"""Releases that have no wheel: where they come from, what builds them, and what cannot be."""

from __future__ import annotations

import os
import random
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest
from mirror.server import serving
from packaging.pylock import Package, PackageVcs
from packaging.utils import canonicalize_name
from packaging.version import Version

from agentix.build.lock.locking import lock_project
from agentix.build.lock.resolution import _origin
from agentix.errors import LockError
from agentix.platforms import PLATFORMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mirror.server import Server

    from agentix.build.lock import Lock
    from agentix.build.lock.file import LockedRelease

SETUP = "from setuptools import setup\nsetup(name='{0}', version='1.0', py_modules=['{0}'])\n"
BUILD = '[build-system]\nrequires = ["{}"]\nbuild-backend = "{}"\n'


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def put(folder: Path, *dependencies: str, more: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "app.py").write_text("")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1.0"\nrequires-python = ">=3.11"\n'
        f"dependencies = {list(dependencies)!r}\n{more}\n"
        + BUILD.format("hatchling", "hatchling.build")
    )
    return folder


def archive(files: Mapping[str, str], kind: str = "gz") -> bytes:
    """Return a source archive: a compressed tar, or a zip."""
    stream = BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(stream, "w") as zipped:
            for name, text in files.items():
                zipped.writestr(name, text)
        return stream.getvalue()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, BytesIO(text.encode()))
    return stream.getvalue()


def sdist(name: str, kind: str = "gz", setup: str = SETUP, **files: str) -> bytes:
    """Return a source archive as an index would have it."""
    info = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    texts = {"PKG-INFO": info, "setup.py": setup.format(name), f"{name}.py": "", **files}
    return archive({f"{name}-1.0/{file}": text for file, text in texts.items()}, kind)


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return subprocess.run(
        ["git", *identity, *words],
        cwd=folder,
        check=True,
        env=clean,
        capture_output=True,
        text=True,
    ).stdout.strip()


def repository(folder: Path, files: Mapping[str, str], tag: str = "v1.4") -> str:
    """Make a repository of *files* and return its one commit."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "all")
    git(folder, "tag", tag)
    return git(folder, "rev-parse", "HEAD")


def only(lock: Lock) -> LockedRelease:
    (release,) = lock.releases
    for platform in PLATFORMS:
        assert lock.platforms[platform].sources == (release.source,)
        assert not lock.platforms[platform].missing
    assert "://" not in lock.dumps()
    return release


def backend(release: LockedRelease) -> set[str]:
    return {file.split("-")[0] for file in release.backend["linux/amd64"]}


@pytest.mark.parametrize("kind", ["gz", "zip"])
def test_a_source_archive_of_a_flat_index_is_locked_with_its_backend(
    tmp_path: Path, kind: str
) -> None:
    index = tmp_path / "files"
    index.mkdir()
    file = "some_dep-1.0." + (kind if kind == "zip" else f"tar.{kind}")
    (index / file).write_bytes(sdist("some_dep", kind))
    app = put(tmp_path / "app", "some-dep", more='[tool.uv]\nfind-links = ["../files"]\n')
    lock = lock_project(app)
    release = only(lock)
    assert (release.source, release.path) == (file, ".")
    assert {"setuptools", "wheel"} <= backend(release)
    assert lock.artifacts[file].size == (index / file).stat().st_size
    lock.save(app / "bundle.lock")
    assert lock_project(app) == lock


def test_a_name_that_no_lock_may_hold_is_one_line(tmp_path: Path) -> None:
    name = "a" * 205  # with version and ending longer than any name in the store
    (tmp_path / "files").mkdir()
    (tmp_path / f"files/{name}-1.0.tar.gz").write_bytes(sdist(name))
    app = put(tmp_path / "app", name, more='[tool.uv]\nfind-links = ["../files"]\n')
    with pytest.raises(LockError, match="must be at most 211 characters long") as caught:
        lock_project(app)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("folder", ["../../etc", "a/../../b", "/etc"])
def test_a_source_cannot_lie_outside_of_itself(folder: str, tmp_path: Path) -> None:
    source = PackageVcs(
        type="git", url="https://a.example/x", commit_id="0" * 40, subdirectory=folder
    )
    package = Package(name=canonicalize_name("dep"), version=Version("1.0"), vcs=source)
    with pytest.raises(LockError, match="dep is said to lie outside of its source"):
        _origin(package, source, tmp_path)
    inside = replace(source, subdirectory="./a/b/")
    assert _origin(package, inside, tmp_path).path == "a/b"


@pytest.mark.parametrize(
    "pyproject",
    [
        "",
        BUILD.format("wheel", "setuptools.build_meta"),
        '[build-system]\nrequires = ["wheel"]\n',
        "[tool.something]\n",
    ],
)
def test_setuptools_need_not_be_declared(tmp_path: Path, pyproject: str) -> None:
    index = tmp_path / "files"
    index.mkdir()
    data = sdist("some_dep", **({"pyproject.toml": pyproject} if pyproject else {}))
    (index / "some_dep-1.0.tar.gz").write_bytes(data)
    settings = 'find-links = ["../files"]\nbuild-constraint-dependencies = ["setuptools<80"]\n'
    # What uv itself builds for metadata gets what we would give it.
    settings += (
        '[tool.uv.extra-build-dependencies]\nsome-dep = ["setuptools", "iniconfig==2.0.0"]\n'
    )
    app = put(tmp_path / "app", "some-dep", more=f"[tool.uv]\n{settings}")
    release = only(lock_project(app))
    assert {"setuptools", "wheel", "iniconfig"} <= backend(release)
    (used,) = (file for file in release.backend["linux/amd64"] if file.startswith("setuptools"))
    assert int(used.split("-")[1].split(".")[0]) < 80


def test_what_only_a_setup_script_asks_for_is_locked_too(tmp_path: Path) -> None:
    setup = SETUP.replace("version=", "setup_requires=['iniconfig==2.0.0'], version=")
    index, folder = tmp_path / "files", tmp_path / "folder_dep"
    index.mkdir()
    folder.mkdir()
    (index / "some_dep-1.0.tar.gz").write_bytes(sdist("some_dep", setup=setup))
    (folder / "setup.py").write_text(setup.format("folder_dep"))
    (folder / "folder_dep.py").write_text("")
    commit = repository(
        tmp_path / "tree_dep", {"setup.py": setup.format("tree_dep"), "tree_dep.py": ""}
    )
    app = put(
        tmp_path / "app",
        *("some-dep", "folder-dep", "tree-dep"),
        more='[tool.uv]\nfind-links = ["../files"]\n[tool.uv.sources]\n'
        'folder-dep = { path = "../folder_dep" }\n'
        f'tree-dep = {{ git = "{(tmp_path / "tree_dep").as_uri()}" }}\n',
    )
    lock = lock_project(app)
    found = {release.source: backend(release) for release in lock.releases}
    assert sorted(found) == ["some_dep-1.0.tar.gz", f"tree-dep-{commit}"]
    (project,) = (project for project in lock.projects if project.name == "folder-dep")
    found["folder-dep"] = {file.split("-")[0] for file in project.backend["linux/amd64"]}
    assert [name for name, files in found.items() if "iniconfig" not in files] == []
    assert {path.name for path in folder.iterdir()} == {"setup.py", "folder_dep.py"}


def test_what_is_at_an_address_is_locked_without_it(tmp_path: Path, server: Server) -> None:
    wheel = BytesIO()
    with zipfile.ZipFile(wheel, "w") as zipped:
        info = "one_dep-1.0.dist-info"
        zipped.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: one-dep\nVersion: 1.0\n")
        zipped.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        zipped.writestr(f"{info}/RECORD", "")
    setup = SETUP.format("other_dep")
    inner = archive({"top/inner/lib/setup.py": setup, "top/inner/lib/other_dep.py": ""}, "zip")
    place = f"/{tmp_path.name}-{uuid4()}"  # uv keeps what other servers had at the same port
    server.offer(f"{place}/one_dep-1.0-py3-none-any.whl", wheel.getvalue())
    server.offer(f"{place}/archive/v1.zip", inner)
    place = f"{server.address}{place}"
    app = put(
        tmp_path / "app",
        *("one-dep", "other-dep"),
        more="[tool.uv.sources]\n"
        f'one-dep = {{ url = "{place}/one_dep-1.0-py3-none-any.whl" }}\n'
        f'other-dep = {{ url = "{place}/archive/v1.zip", subdirectory = "inner/lib" }}\n',
    )
    lock = lock_project(app)
    release = only(lock)
    assert (release.source, release.path) == ("other-dep-1.0.zip", "inner/lib")
    assert lock.artifacts[release.source].direct
    assert lock.artifacts["one_dep-1.0-py3-none-any.whl"].direct


def test_a_commit_is_locked_as_the_tree_that_it_is(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": BUILD.format("flit", "flit"),
        "libs/dep/pyproject.toml": '[project]\nname = "dep"\ndynamic = ["version"]\n'
        + BUILD.format("setuptools-scm", "setuptools.build_meta")
        + '[tool.setuptools_scm]\nroot = "../.."\n',
        "libs/dep/dep.py": "",
    }
    commit = repository(tmp_path / "dep", files)
    source = f'git = "{(tmp_path / "dep").as_uri()}", subdirectory = "libs/dep", tag = "v1.4"'
    app = put(tmp_path / "app", "dep", more=f"[tool.uv.sources]\ndep = {{ {source} }}\n")
    lock = lock_project(app)
    release = only(lock)
    artifact = lock.artifacts[release.source]
    assert (release.source, release.path) == (f"dep-{commit}", "libs/dep")
    assert (artifact.version, artifact.commit) == ("1.4", commit)
    assert {"setuptools", "setuptools_scm"} <= backend(release)
    (tmp_path / "dep/libs/dep/dep.py").chmod(0o640)  # which git does not keep
    assert lock_project(app) == lock


def test_a_uv_lock_keeps_a_branch_where_it_was(tmp_path: Path) -> None:
    from agentix.build.lock.uv import find_uv

    files = {"setup.py": SETUP.format("dep"), "dep.py": ""}
    first = repository(tmp_path / "dep", files)
    source = f'git = "{(tmp_path / "dep").as_uri()}"'
    app = put(tmp_path / "app", "dep", more=f"[tool.uv.sources]\ndep = {{ {source} }}\n")
    subprocess.run([find_uv(), "lock", "--quiet"], cwd=app, check=True)
    git(tmp_path / "dep", "commit", "--quiet", "--allow-empty", "--message", "more")
    assert only(lock_project(app)).source == f"dep-{first}"
    (app / "uv.lock").unlink()
    assert only(lock_project(app)).source != f"dep-{first}"


def test_submodules_belong_to_a_commit_and_history_does_not(tmp_path: Path) -> None:
    from agentix.build.lock.git import check_out

    repository(tmp_path / "inner", {"inner.txt": "inner"})
    repository(tmp_path / "dep", {"dep.txt": "dep\r\n", ".gitattributes": "*.txt text\n"})
    git(tmp_path / "dep", "submodule", "--quiet", "add", "../inner", "below/inner")
    git(tmp_path / "dep", "commit", "--quiet", "--all", "--message", "more")
    commit = git(tmp_path / "dep", "rev-parse", "HEAD")
    import asyncio

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_COUNT", "2")
        patch.setenv("GIT_CONFIG_KEY_0", "protocol.file.allow")
        patch.setenv("GIT_CONFIG_VALUE_0", "always")
        patch.setenv("GIT_CONFIG_KEY_1", "core.autocrlf")
        patch.setenv("GIT_CONFIG_VALUE_1", "true")
        patch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
        asyncio.run(check_out((tmp_path / "dep").as_uri(), commit, tmp_path / "tree"))
    found = {str(f.relative_to(tmp_path / "tree")): f for f in (tmp_path / "tree").rglob("*")}
    assert {name for name, file in found.items() if file.is_file()} == {
        ".gitattributes",
        ".gitmodules",
        "below/inner/inner.txt",
        "dep.txt",
    }
    assert found["dep.txt"].read_bytes() == b"dep\n"
    with pytest.raises(LockError, match=f"cannot get commit {'0' * 40} with git: .*check that"):
        asyncio.run(check_out((tmp_path / "dep").as_uri(), "0" * 40, tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def damaged_xz() -> bytes:
    """Return an archive whose damage shows only when most of it has been read."""
    stream = BytesIO()
    with tarfile.open(fileobj=stream, mode="w:xz") as tar:
        for number in range(2):
            member = tarfile.TarInfo(f"some_dep-1.0/{number}")
            member.size = 1_000_000
            tar.addfile(member, BytesIO(random.Random(number).randbytes(member.size)))
    data = bytearray(stream.getvalue())
    data[1_500_000:1_500_100] = bytes(100)
    return bytes(data)


def long_header() -> bytes:
    """Return an archive with a header that would be read whole."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 64 * 1024**2
    stream = BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("some_dep-1.0/README"))
        tar.addfile(header, BytesIO(bytes(header.size)))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"no archive", "cannot read the source archive some_dep-1.0.tar.gz"),
        (damaged_xz(), "cannot read the source archive some_dep-1.0.tar.gz"),
        (long_header(), "a header in it has 67108864 bytes"),
        (archive({"some_dep-1.0/README": ""}), "is no Python project; is its subdirectory right"),
        (
            archive({"a/pyproject.toml": "[build-system", "a/setup.py": ""}),
            "the source of some-dep 1.0 cannot be built: pyproject.toml is not valid TOML",
        ),
    ],
)
def test_a_source_that_cannot_be_built_is_one_line(tmp_path: Path, data: bytes, says: str) -> None:
    import asyncio
    import hashlib

    from agentix.build.lock.releases import lock_release
    from agentix.build.lock.resolution import Origin

    file = tmp_path / "some_dep-1.0.tar.gz"
    file.write_bytes(data)
    origin = Origin(
        package="some-dep",
        version="1.0",
        address=file.as_uri(),
        file=file.name,
        sha256=hashlib.sha256(data).hexdigest(),
    )
    with pytest.raises(LockError) as caught:
        asyncio.run(lock_release(origin, tmp_path, cast("Any", None)))  # it comes not that far
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
