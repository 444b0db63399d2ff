from __future__ import annotations

import os
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from agentix.build.lock import Lock, LockedProject, Target
from agentix.build.plan import sources
from agentix.build.sources import Source, source_files, unseen
from agentix.errors import ProjectError

if TYPE_CHECKING:
    from pathlib import Path


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, env=clean
    )


def put(root: Path, *names: str) -> None:
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    put(root, "pyproject.toml", "src/app/__init__.py")
    git(tmp_path, "init", "--quiet", "repository")
    return root


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    root = tmp_path / "plain"
    put(root, "pyproject.toml", "src/app/__init__.py")
    return root


def test_ignored_files_stay_out(repository: Path) -> None:
    put(repository, ".env", "cache/x", "notes.txt")
    (repository / ".gitignore").write_text(".env\ncache/\n")
    assert source_files(repository) == [
        ".gitignore",
        "notes.txt",
        "pyproject.toml",
        "src/app/__init__.py",
    ]


def test_a_submodule_is_skipped_and_does_not_break_the_rest(
    repository: Path, tmp_path: Path
) -> None:
    put(tmp_path / "library", "lib.py")
    git(tmp_path, "init", "--quiet", "library")
    git(tmp_path / "library", "add", "-A")
    git(tmp_path / "library", "commit", "--quiet", "-m", "x")
    git(repository, "submodule", "--quiet", "add", str(tmp_path / "library"), "vendored")
    assert (repository / "vendored" / "lib.py").exists()
    assert source_files(repository) == [".gitmodules", "pyproject.toml", "src/app/__init__.py"]


@pytest.mark.parametrize("kind", ["repository", "plain"])
def test_outputs_are_left_out_at_the_root_only(kind: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(kind)
    put(root, "build/lib/x.py", "dist/x.whl", "result-dev", ".venv/pyvenv.cfg", "bundle.lock")
    (root / "result").symlink_to("/nix/store/x")
    kept = ["src/app/build/__init__.py", "src/app/dist/x.py", "src/app/result", "resulting/x.py"]
    put(root, *kept, "src/app/__pycache__/x.pyc", "tools/.venv/x", "src/app/bundle.lock")
    expected = [*kept, "pyproject.toml", "src/app/__init__.py", "src/app/bundle.lock"]
    assert source_files(root) == sorted(expected)


@pytest.mark.parametrize("kind", ["repository", "plain"])
def test_bundles_are_left_out_wherever_they_were_written_and_while_they_are(
    kind: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(kind)
    before = source_files(root)
    put(root, "out/app-1-linux-arm64.bundle.tar", "out/.app-1-linux-amd64.bundle.tar.part")
    put(root, ".bundle.lock.0123456789abcdef.part")
    assert source_files(root) == before


def test_a_package_called_build_that_git_tracks_is_kept(repository: Path) -> None:
    put(repository, "build/__init__.py")
    git(repository, "add", "build")
    assert "build/__init__.py" in source_files(repository)


def test_a_deleted_file_that_git_still_tracks_is_left_out(repository: Path) -> None:
    put(repository, "gone.py", "folder/also.py")
    git(repository, "add", "-A")
    (repository / "gone.py").unlink()
    (repository / "folder" / "also.py").unlink()
    (repository / "folder").rmdir()
    put(repository, "folder")
    assert source_files(repository) == ["folder", "pyproject.toml", "src/app/__init__.py"]


@pytest.mark.parametrize("kind", ["repository", "plain"])
def test_odd_names_survive(kind: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(kind)
    odd = ["-dash.py", "a b.py", "new\nline.py", "ünï.py", 'quo"te', "back\\slash", "src/.hidden"]
    put(root, *odd)
    (root / "empty").touch()
    found = source_files(root)
    assert set(odd) | {"empty"} <= set(found)
    assert found == sorted(found)


@pytest.mark.parametrize("kind", ["repository", "plain"])
def test_links_are_kept_as_links_also_broken_ones_and_those_to_folders(
    kind: str, request: pytest.FixtureRequest
) -> None:
    root: Path = request.getfixturevalue(kind)
    (root / "broken").symlink_to("nowhere")
    (root / "folder").symlink_to("src")
    assert {"broken", "folder"} <= set(source_files(root))
    assert not any(name.startswith("folder/") for name in source_files(root))


def test_what_is_there_but_the_build_does_not_see_is_told(repository: Path) -> None:
    put(repository, ".env", ".gitignore", "data/a.txt")
    (repository / ".gitignore").write_text(".env\n")
    put(repository.parent, "shared.py")
    for name, target in {
        "broken": "nowhere",
        "loop": "loop",
        "file": "src/app/__init__.py",
        "folder": "data",
        "through": "folder/a.txt",
    }.items():
        (repository / name).symlink_to(target)
    for name in ("inner", "vendored"):
        put(repository, f"{name}/lib/pyproject.toml")
        git(repository / name, "init", "--quiet")
    lost = {
        "absolute": str(repository / "data"),
        "hidden": ".env",
        "shared": "../shared.py",
        "src/up": "../..",
    }
    for name, target in lost.items():
        (repository / name).symlink_to(target)
    source = Source(repository, tuple(source_files(repository)))
    projects = [repository, repository / "vendored" / "lib"]
    assert unseen(source, projects) == sorted([*lost, "inner"])


@pytest.mark.parametrize("kind", ["repository", "plain"])
def test_sockets_and_pipes_are_not_sources(kind: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(kind)
    os.mkfifo(root / "pipe")
    before = os.getcwd()  # noqa: PTH109
    os.chdir(root)  # a socket's path may be no longer than 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
            assert source_files(root) == ["pyproject.toml", "src/app/__init__.py"]
    finally:
        os.chdir(before)


def test_a_name_that_is_not_utf8_is_refused_by_name(plain: Path) -> None:
    (plain / os.fsdecode(b"\xff.py")).touch()
    with pytest.raises(ProjectError, match="not UTF-8"):
        source_files(plain)


def test_the_project_may_be_a_folder_of_a_repository(repository: Path) -> None:
    put(repository, "apps/one/pyproject.toml", "apps/one/one.py", "apps/two.py")
    assert source_files(repository / "apps" / "one") == ["one.py", "pyproject.toml"]


def test_a_project_in_an_ignored_folder_of_an_outer_repository_has_its_files(
    repository: Path,
) -> None:
    (repository / ".gitignore").write_text("scratch/\n")
    put(repository, "scratch/pyproject.toml", "scratch/x.py", "scratch/dist/y")
    assert source_files(repository / "scratch") == ["pyproject.toml", "x.py"]


def test_a_git_environment_from_outside_changes_nothing(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(repository, ".env")
    (repository / ".git" / "info" / "exclude").write_text(".env\n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert source_files(repository) == ["pyproject.toml", "src/app/__init__.py"]


def test_what_is_ignored_stays_out_before_there_is_a_repository(plain: Path) -> None:
    put(plain, ".env", "src/app/.env", "src/app/build/x.py", "dist/x")
    (plain / ".gitignore").write_text(".env\n")
    assert source_files(plain) == [
        ".gitignore",
        "pyproject.toml",
        "src/app/__init__.py",
        "src/app/build/x.py",
    ]


def test_without_git_a_repository_is_refused_rather_than_copied_with_its_secrets(
    repository: Path, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(plain))
    assert source_files(plain) == ["pyproject.toml", "src/app/__init__.py"]
    (plain / ".gitignore").touch()
    for root in (repository, plain):
        with pytest.raises(ProjectError, match="install git"):
            source_files(root)


def lock_of(**paths: str) -> Lock:
    projects = [
        LockedProject(name=name, version="1", path=path, backend={}) for name, path in paths.items()
    ]
    return Lock(
        name="app",
        version="1",
        inputs="0" * 64,
        toolchain="debian-12",
        python="3.11",
        projects=tuple(projects),
        platforms={"linux/amd64": Target(wheels=())},
        artifacts={},
    )


def test_a_project_inside_another_belongs_to_itself_alone(repository: Path) -> None:
    app = repository / "examples" / "app"
    put(app, "pyproject.toml", "app.py", "vendored/lib/pyproject.toml", "vendored/lib/lib.py")
    put(repository, "examples/application.py")
    found = sources(lock_of(app=".", whole="../..", lib="vendored/lib"), app)
    assert {name: (s.root, list(s.files)) for name, s in found.items()} == {
        "app": (app, ["app.py", "pyproject.toml"]),
        "lib": (app / "vendored" / "lib", ["lib.py", "pyproject.toml"]),
        "whole": (
            repository,
            ["examples/application.py", "pyproject.toml", "src/app/__init__.py"],
        ),
    }


def test_a_dependency_that_is_gone_is_named(plain: Path) -> None:
    with pytest.raises(ProjectError, match="the source of lib is not at"):
        sources(lock_of(app=".", lib="../lib"), plain)
