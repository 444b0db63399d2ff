"""An image is the same bytes whoever writes it, in forms that agree with one another."""

from __future__ import annotations

import hashlib
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from images import ImageConfig, TaskImage
from images.archives import write_docker_archive, write_oci_layout, write_rootfs_tar

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def small(tmp_path: Path) -> TaskImage:
    rootfs = tmp_path / "rootfs"
    (rootfs / "bin").mkdir(parents=True)
    (rootfs / "bin" / "task").write_text("#!/bin/false\n")
    (rootfs / "bin" / "task").chmod(0o4755)
    (rootfs / "bin" / "link").symlink_to("task")
    config = ImageConfig(env=(("A", "1"),), workdir="/bin", user="7", entrypoint=("/bin/task",))
    return TaskImage("small", "0", rootfs, config, "amd64")


def read(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        member = tar.extractfile(name)
        assert member is not None
        return member.read()


def test_the_same_root_gives_the_same_bytes(small: TaskImage, tmp_path: Path) -> None:
    first = write_rootfs_tar(small, tmp_path / "1.tar").read_bytes()
    assert first == write_rootfs_tar(small, tmp_path / "2.tar").read_bytes()


def test_members_belong_to_root_and_keep_their_modes(small: TaskImage, tmp_path: Path) -> None:
    with tarfile.open(write_rootfs_tar(small, tmp_path / "1.tar")) as tar:
        members = {member.name: member for member in tar}
    assert {(m.uid, m.gid, m.uname) for m in members.values()} == {(0, 0, "")}
    assert members["bin/task"].mode == 0o4755
    assert members["bin/link"].linkname == "task"


def test_a_docker_archive_names_its_layer_by_digest(small: TaskImage, tmp_path: Path) -> None:
    archive = write_docker_archive(small, tmp_path / "d.tar", tag="small:1")
    [entry] = json.loads(read(archive, "manifest.json"))
    config: dict[str, Any] = json.loads(read(archive, entry["Config"]))
    layer = hashlib.sha256(read(archive, entry["Layers"][0])).hexdigest()
    assert entry["RepoTags"] == ["small:1"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{layer}"]
    assert config["config"] == {
        "Env": ["A=1"],
        "WorkingDir": "/bin",
        "User": "7",
        "Entrypoint": ["/bin/task"],
    }


def test_every_blob_of_an_oci_layout_has_the_digest_it_is_called_by(
    small: TaskImage, tmp_path: Path
) -> None:
    archive = write_oci_layout(small, tmp_path / "o.tar", tag="small:1")
    with tarfile.open(archive) as tar:
        blobs = [name for name in tar.getnames() if name.startswith("blobs/")]
    assert len(blobs) == 3
    for name in blobs:
        assert name == f"blobs/sha256/{hashlib.sha256(read(archive, name)).hexdigest()}"
    [entry] = json.loads(read(archive, "index.json"))["manifests"]
    assert f"blobs/{entry['digest'].replace(':', '/')}" in blobs
