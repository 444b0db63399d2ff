"""An image is found, checked and unpacked once, in whichever form people keep it."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from images.archives import write_docker_archive, write_oci_layout, write_rootfs_tar
from images.config import ImageConfig, TaskImage

from agentix import platforms
from agentix.errors import ImageError
from agentix.provider.images.formats import ImageDescription, parse
from agentix.provider.images.store import Image, ImageStore

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = platforms.current()


@pytest.fixture
def task(tmp_path: Path) -> TaskImage:
    rootfs = tmp_path / "made"
    (rootfs / "etc").mkdir(parents=True)
    (rootfs / "etc/hostname").write_text("task")
    (rootfs / "opt").mkdir(mode=0o750)
    config = ImageConfig(
        env=(("A", "b=c"),), workdir="/opt", user="1234", entrypoint=("/bin/false",)
    )
    return TaskImage("task", "0", rootfs, config, HERE.debian)


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "cache")


def rewrite(source: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """Copy a tar with each member's content changed, or the member left out."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old:
            file = old.extractfile(member)
            content = change(member.name, file.read() if file else b"")
            if content is not None:
                member.size = len(content)
                new.addfile(member, io.BytesIO(content))
    return target


def litter(cache: Path) -> list[str]:
    return [path.name for path in (cache / "staging").iterdir()]


@pytest.mark.parametrize("writer", [write_docker_archive, write_oci_layout])
def test_an_image_archive_gives_its_files_and_its_configuration(
    store: ImageStore, task: TaskImage, tmp_path: Path, writer: Any
) -> None:
    image = store.open(str(writer(task, tmp_path / "image.tar", tag="task:1")))
    assert (image.root / "etc/hostname").read_text() == "task"
    assert image.run.env == ("A=b=c",)
    assert image.run.working_dir == "/opt"
    assert image.run.user == "1234"
    assert image.platform == HERE.name
    assert litter(tmp_path / "cache") == []


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_root_file_system_may_be_compressed(
    store: ImageStore, task: TaskImage, tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    archive = write_rootfs_tar(task, tmp_path / "plain.tar")
    archive.write_bytes(pack(archive.read_bytes()))
    image = store.open(str(archive))
    assert (image.root / "etc/hostname").read_text() == "task"
    assert image.platform is None


def test_compressed_layers_are_checked_as_they_are_and_as_they_unpack(
    store: ImageStore, tmp_path: Path
) -> None:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("hello"))
    packed = gzip.compress(layer.getvalue())
    wrong = gzip.compress(layer.getvalue() + bytes(512))
    for name, blob, lie in (("good", packed, None), ("swapped", wrong, packed)):
        path = _oci(tmp_path / f"{name}.tar", layer.getvalue(), blob, lie)
        if lie is None:
            assert (store.open(str(path)).root / "hello").exists()
        else:
            with pytest.raises(ImageError, match="damaged"):
                ImageStore(tmp_path / "other").open(str(path))
    assert litter(tmp_path / "other") == []


def _oci(path: Path, unpacked: bytes, blob: bytes, named: bytes | None) -> Path:
    """Write an OCI layout with one layer, which may pretend to be *named*."""
    digest = hashlib.sha256(named or blob).hexdigest()
    blobs = {digest: blob}

    def add(document: dict[str, Any]) -> dict[str, Any]:
        content = json.dumps(document).encode()
        name = hashlib.sha256(content).hexdigest()
        blobs[name] = content
        return {"digest": f"sha256:{name}", "size": len(content), "mediaType": "x"}

    diff = f"sha256:{hashlib.sha256(unpacked).hexdigest()}"
    config = add({"architecture": HERE.debian, "os": "linux", "rootfs": {"diff_ids": [diff]}})
    layers = [{"digest": f"sha256:{digest}", "size": len(blob), "mediaType": "x"}]
    manifest = add({"config": config, "layers": layers})
    index = {"manifests": [manifest | {"platform": {"os": "linux", "architecture": HERE.debian}}]}
    with tarfile.open(path, "w") as archive:
        members = {"oci-layout": b"{}", "index.json": json.dumps(index).encode()}
        members |= {f"blobs/sha256/{name}": content for name, content in blobs.items()}
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("digest", ["../../../etc/passwd", "/etc/passwd", "sha256:../x", "sha256:"])
def test_what_an_image_calls_a_layer_is_no_name_of_a_file(digest: str) -> None:
    content = json.dumps({"rootfs": {"diff_ids": [digest]}}).encode()
    with pytest.raises(ImageError, match="image x has a y that cannot be read"):
        parse(ImageDescription, content, image="x", what="y")


def test_one_image_in_two_archives_is_unpacked_once(
    store: ImageStore, task: TaskImage, tmp_path: Path
) -> None:
    first = store.open(str(write_docker_archive(task, tmp_path / "a.tar", tag="task:1")))
    marker = first.root / "marker"
    marker.touch()
    again = store.open(str(tmp_path / "a.tar"))
    copy = store.open(str(write_docker_archive(task, tmp_path / "b.tar", tag="task:2")))
    assert again.root == copy.root == first.root
    assert marker.exists()


def test_an_archive_written_anew_under_its_old_name_is_another_image(
    store: ImageStore, task: TaskImage, tmp_path: Path
) -> None:
    path = write_rootfs_tar(task, tmp_path / "a.tar")
    first = store.open(str(path))
    (task.rootfs / "etc/hostname").write_text("changed")
    second = store.open(str(write_rootfs_tar(task, path)))
    assert second.root != first.root
    assert (second.root / "etc/hostname").read_text() == "changed"


def test_many_may_want_the_same_image_at_once(
    store: ImageStore, task: TaskImage, tmp_path: Path
) -> None:
    path = str(write_rootfs_tar(task, tmp_path / "a.tar"))
    with ThreadPoolExecutor(8) as pool:
        images: list[Image] = list(pool.map(store.open, [path] * 8))
    assert len({image.root for image in images}) == 1
    assert litter(tmp_path / "cache") == []


def test_the_umask_does_not_decide_who_can_read(
    store: ImageStore, task: TaskImage, tmp_path: Path
) -> None:
    path = write_rootfs_tar(task, tmp_path / "a.tar")
    before = os.umask(0o077)
    try:
        image = store.open(str(path))
    finally:
        os.umask(before)
    assert image.root.parent.stat().st_mode & 0o777 == 0o755
    assert image.root.stat().st_mode & 0o777 == 0o755
    assert (image.root / "etc/hostname").stat().st_mode & 0o777 == 0o644
    assert (image.root / "opt").stat().st_mode & 0o777 == 0o750


def test_a_folder_is_used_where_it_is(store: ImageStore, task: TaskImage) -> None:
    image = store.open(str(task.rootfs))
    assert image.root == task.rootfs
    assert not image.host


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def _flip(path: Path) -> None:
    content = path.read_bytes()
    at = content.index(b"task", content.index(b"hostname"))
    path.write_bytes(content[:at] + b"tusk" + content[at + 4 :])


@pytest.mark.parametrize("damage", [_truncate, _flip])
@pytest.mark.parametrize("writer", [write_docker_archive, write_oci_layout])
def test_a_damaged_archive_is_refused_and_leaves_nothing(
    store: ImageStore, task: TaskImage, tmp_path: Path, writer: Any, damage: Any
) -> None:
    path = writer(task, tmp_path / "image.tar", tag="task:1")
    damage(path)
    with pytest.raises(ImageError) as caught:
        store.open(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    images = tmp_path / "cache/images"
    assert not images.exists() or not list(images.glob("sha256-*"))


def test_an_image_for_another_platform_says_so(
    store: ImageStore, task: TaskImage, tmp_path: Path
) -> None:
    other = "arm64" if HERE.debian == "amd64" else "amd64"
    foreign = TaskImage("task", "0", task.rootfs, task.config, other)
    path = write_docker_archive(foreign, tmp_path / "docker.tar", tag="task:1")
    assert store.open(str(path)).platform == f"linux/{other}"
    layout = write_oci_layout(foreign, tmp_path / "oci.tar", tag="task:1")
    with pytest.raises(ImageError, match=f"is for linux/{other}, not for {HERE.name}"):
        store.open(str(layout))


def test_an_archive_of_several_images_is_refused(
    store: ImageStore, task: TaskImage, tmp_path: Path
) -> None:
    path = write_docker_archive(task, tmp_path / "one.tar", tag="task:1")

    def twice(name: str, content: bytes) -> bytes:
        return json.dumps(json.loads(content) * 2).encode() if name == "manifest.json" else content

    with pytest.raises(ImageError, match="holds 2 images"):
        store.open(str(rewrite(path, tmp_path / "two.tar", twice)))


def test_a_missing_layer_is_named(store: ImageStore, task: TaskImage, tmp_path: Path) -> None:
    path = write_docker_archive(task, tmp_path / "one.tar", tag="task:1")

    def without_layers(name: str, content: bytes) -> bytes | None:
        return None if name.endswith("layer.tar") else content

    with pytest.raises(ImageError, match=r"lacks the layer '\w{64}/layer.tar'"):
        store.open(str(rewrite(path, tmp_path / "less.tar", without_layers)))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not a tar", "no tar archive"),
        (b"", "no tar archive"),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "no tar archive"),
    ],
)
def test_a_file_that_is_no_archive_is_refused(
    store: ImageStore, tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=reason):
        store.open(str(path))


@pytest.mark.parametrize("name", ["/no/such/folder", "./image.tar", "UPPER", "a:b:c", "docker://"])
def test_what_is_neither_there_nor_a_name_is_said_so(store: ImageStore, name: str) -> None:
    with pytest.raises(ImageError, match="nor a name that a registry could know"):
        store.open(name)


def test_a_cache_that_cannot_be_written_is_named(task: TaskImage, tmp_path: Path) -> None:
    path = write_rootfs_tar(task, tmp_path / "a.tar")
    blocked = tmp_path / "blocked"
    blocked.touch()
    with pytest.raises(ImageError, match=str(blocked)):
        ImageStore(blocked).open(str(path))


def test_what_is_no_archive_is_said_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no tar at all\n" * 1000)
    with pytest.raises(ImageError, match=r"no tar archive .*docker save") as caught:
        ImageStore(tmp_path / "cache").open(str(tmp_path / "notes.txt"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000])
def test_a_name_that_no_image_can_have_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(ImageError):
        ImageStore(tmp_path / "cache").open(str(tmp_path / name))


def test_a_bundle_is_told_from_an_image(tmp_path: Path) -> None:
    path = tmp_path / "some.bundle.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("manifest.json", "nix/store/a"):
            tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(ImageError, match=f"^image {path} is a bundle, not an image; "):
        ImageStore(tmp_path / "cache").open(str(path))


@pytest.mark.parametrize("name", ["x" * 5000, "no image/" * 600])
def test_a_name_that_is_too_long_is_not_told_in_full(tmp_path: Path, name: str) -> None:
    with pytest.raises(ImageError) as caught:
        ImageStore(tmp_path / "cache").open(name)
    assert len(str(caught.value)) < 500


def test_an_archive_whose_description_is_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        member = tarfile.TarInfo("manifest.json")
        member.type, member.linkname = tarfile.SYMTYPE, "manifest.json"
        archive.addfile(member)
    with pytest.raises(ImageError, match=r"lacks 'manifest\.json'"):
        ImageStore(tmp_path / "cache").open(str(tmp_path / "image.tar"))


def test_a_header_that_makes_no_sense_is_the_images_fault(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "image.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("etc")
        member.pax_headers = {"GNU.sparse.map": "many,holes", "GNU.sparse.size": "9"}
        archive.addfile(member)
    with pytest.raises(ImageError):
        ImageStore(tmp_path / "cache").open(str(tmp_path / "image.tar"))
    staging = tmp_path / "cache/staging"
    assert not staging.exists() or list(staging.iterdir()) == []


FORBIDDEN = """
import os, sys
from pathlib import Path
from agentix.bundle import BundleCache
from agentix.errors import BundleError, ImageError
from agentix.provider.images.formats import ImageDescription, parse
from agentix.provider.images.store import ImageStore
place = Path(sys.argv[1])
if os.getuid() == 0:
    os.chown(place, 54321, 54321)
    os.setgroups([]), os.setgid(54321), os.setuid(54321)
(place / "closed/folder").mkdir(parents=True)
(place / "closed/file").touch()
(place / "closed").chmod(0)
for name in ("closed", "closed/folder", "closed/file"):
    for open_ in (ImageStore(place / "cache").open, BundleCache(place / "cache").open):
        try:
            open_(str(place / name))
        except (BundleError, ImageError) as error:
            print(error)
"""


def test_what_may_not_be_read_is_one_line_for_images_and_bundles() -> None:
    # Not tmp_path: another user cannot go there.
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        result = subprocess.run(
            [sys.executable, "-c", FORBIDDEN, place],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        Path(place, "closed").chmod(0o700)
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert len(lines) == 6
    assert all("closed" in line and "Permission denied" in line for line in lines)
