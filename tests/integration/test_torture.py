"""One project with all that goes wrong elsewhere, really built, in a root that holds nothing else.

What is in its sources is in tests/projects/torture; what a checkout cannot hold (odd names, a
repository with a tag, a submodule, times before 1980) is added to a copy of it here.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentix import SandboxConfig
from agentix.build.build import build_bundle
from agentix.build.lock import load
from agentix.provider.bubblewrap import BubblewrapProviderConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.build.built import BuiltBundle

pytestmark = [pytest.mark.nix, pytest.mark.bubblewrap, pytest.mark.slow]
PROJECT = Path(__file__).parents[1] / "projects/torture"
TAG = "2.5.1"
VERSIONS = {
    "Torture.Task": "1.0.0rc1",
    "by-flit": "4.5",
    "by-hatch-vcs": TAG,
    "by-setuptools-scm": TAG,
    "by-uv": "5.6",
    "carrier": "1.0",
    "legacy": "0.3",
}
ODD_NAMES = (
    "-dash.txt",
    "two words.txt",
    "line\nbreak.txt",
    "naïve 日本.txt",
    "quo'te\".txt",
    "$HOME,*?.txt",
    "back\\slash.txt",
)
# A wheel that comes from a folder, without a hash, and has path configuration files.
CARRIER = {
    "carrier.pth": "carried\nimport carrier_starts\n",
    "carrier_starts.py": 'FOUND = "started"\n',
    "carried/reached.py": 'FOUND = "reached"\n',
    "carrier-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n",
    "carrier-1.0.dist-info/WHEEL": (
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    ),
}
SECRETS = ("the-secret-that-is-ignored", "the-module-of-a-submodule")


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, env=clean)


def commit(folder: Path, *paths: str) -> None:
    git(folder, "add", "--all", "--", ".", *paths)
    git(folder, "commit", "--quiet", "--message", "everything")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with what a checkout cannot hold, in a repository with a tag."""
    folder = tmp_path_factory.mktemp("torture")
    root = shutil.copytree(PROJECT, folder / "the repository", symlinks=True)
    data = root / "app/src/warped/data"
    for name in ODD_NAMES:
        (data / name).write_text(name)
    for place in (root, root / "app", data):
        (place / ".env").write_text(SECRETS[0])
    wheel = root / "wheels/carrier-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    record = "".join(f"{name},,\n" for name in [*CARRIER, "carrier-1.0.dist-info/RECORD"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in (CARRIER | {"carrier-1.0.dist-info/RECORD": record}).items():
            archive.writestr(name, text)
    other = folder / "other"
    other.mkdir()
    (other / "other.txt").write_text(SECRETS[1])
    for place in (other, root):
        git(place, "init", "--quiet")
    commit(other)
    git(root, "submodule", "--quiet", "add", str(other), "app/src/warped/data/vendored")
    commit(root, ":!app/src/warped/dist")  # new, and called like what builds leave
    git(root, "tag", f"v{TAG}")
    for path in root.rglob("*"):
        if ".git" not in path.parts:
            os.utime(path, (0, 0), follow_symlinks=False)
    return root


@pytest.fixture(scope="module")
def bundle(repository: Path) -> BuiltBundle:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1")  # ten years before a zip file can say it
        return build_bundle(repository / "app", output=repository.parent / "out")


@pytest.fixture(scope="module")
def answers(repository: Path, bundle: BuiltBundle) -> Iterator[dict[str, Any]]:
    """What the project's own functions say in a sandbox of which the image is empty."""
    image = repository.parent / "image"
    image.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTIX_CACHE_DIR", str(repository.parent / "cache"))
        patch.syspath_prepend(repository / "app/src")
        yield asyncio.run(visit(image, bundle))


async def visit(image: Path, bundle: BuiltBundle) -> dict[str, Any]:
    warped = importlib.import_module("warped")
    calls: dict[str, Any] = {
        "versions": (warped.versions, [*VERSIONS]),
        "records": (warped.records, [*VERSIONS]),
        "entry points": (warped.entry_points,),
        "data": (warped.data,),
        "data outside": (warped.data_outside,),
        "constants": (
            warped.constants,
            [
                *("warped.dist.x:FOUND", "legacy:FOUND", "by_uv:FOUND", "reached:FOUND"),
                *("by_flit:__version__", "by_hatch_vcs._version:__version__"),
                *("by_setuptools_scm._version:__version__", "by_hatch_vcs.alias.found:FOUND"),
            ],
        ),
        "script": (warped.program, ["torture"]),
        "imports": (warped.program, ["python", "-v", "-c", "import aiohttp, warped.build"]),
        "carrier": (warped.imported, "carrier_starts"),
        "setuptools": (warped.imported, "_distutils_hack"),
    }
    config = SandboxConfig(image=str(image), bundle=str(bundle.path))
    async with BubblewrapProviderConfig().to_provider().session(config, timeout=60) as sandbox:
        return {name: await sandbox.remote(*call) for name, call in calls.items()}


def test_versions_are_what_each_backend_says_though_no_history_is_built(
    repository: Path, bundle: BuiltBundle, answers: dict[str, Any]
) -> None:
    assert answers["versions"] == VERSIONS
    lock = load(repository / "app/bundle.lock")
    locked = {p.name: p.version for p in lock.projects if not p.name.startswith("agentix")}
    assert locked.pop("torture-task") == bundle.version == VERSIONS["Torture.Task"]
    assert locked == {name: VERSIONS[name] for name in locked}
    assert len(locked) == 5


def test_every_record_is_true(answers: dict[str, Any]) -> None:
    assert answers["records"] == {name: [] for name in VERSIONS}


def test_entry_points_lead_to_what_they_name(answers: dict[str, Any]) -> None:
    assert answers["entry points"] == {"first": "warped.parts", "second": "wrung"}
    assert answers["script"] == (0, "the script runs\n", "")


def test_package_data_is_there_whatever_it_is_called(answers: dict[str, Any]) -> None:
    data = answers["data"]
    odd = {name: (name.encode(), False) for name in ODD_NAMES}
    assert data == odd | {
        "empty": (b"", False),
        "plain.txt": (b"plain text\n", False),
        "link.txt": (b"plain text\n", False),
        "run.sh": (b"#!/bin/sh\n", True),
    }


def test_data_outside_of_packages_is_installed(answers: dict[str, Any]) -> None:
    assert answers["data outside"] == {"outside.txt": "outside\n", "deep/deeper.txt": "deeper\n"}


def test_every_layout_and_every_backend_gives_modules_that_import(answers: dict[str, Any]) -> None:
    assert answers["constants"] == {
        "warped.dist.x": "dist/x.py",
        "legacy": "legacy",
        "by_uv": "by_uv",
        "reached": "reached",
        "by_flit": "4.5",
        "by_hatch_vcs._version": TAG,
        "by_setuptools_scm._version": TAG,
        "by_hatch_vcs.alias.found": "by_hatch_vcs.alias.found",
    }


def test_path_configuration_of_wheels_is_read_when_python_starts(answers: dict[str, Any]) -> None:
    assert answers["carrier"]
    assert answers["setuptools"]


def test_nothing_is_compiled_in_a_sandbox(answers: dict[str, Any]) -> None:
    code, _, log = answers["imports"]
    assert code == 0, log
    assert "aiohttp" in log
    lines = [line for line in log.splitlines() if line.startswith("# code object from")]
    assert len(lines) > 100
    assert [line for line in lines if not line.endswith(".pyc'")] == []


def test_what_git_does_not_know_is_in_no_bundle(bundle: BuiltBundle) -> None:
    content = bundle.path.read_bytes()
    assert b"plain text" in content
    assert [secret for secret in SECRETS if secret.encode() in content] == []
