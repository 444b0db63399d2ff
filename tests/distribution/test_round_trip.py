"""What was pushed comes back, the same byte for byte, and what is there already does not travel."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bundle.handmade import INFO, listing, root_tree, store_name

from agentix.bundle import BundleCache
from agentix.bundle.compression import zstd
from agentix.distribution import pull, push
from agentix.errors import DistributionError
from distribution.conftest import QUICK

if TYPE_CHECKING:
    from bundle.handmade import Workshop

    from distribution.front import Front


def document(front: Front, name: str, reference: str) -> dict[str, Any]:
    """Return what a registry has at *reference* of the repository in *name*."""
    repository = name.partition("/")[2].rpartition(":")[0]
    url = f"{front.behind}/v2/{repository}/manifests/{reference}"
    kinds = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers={"Accept": kinds}), timeout=30) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def blob(front: Front, name: str, digest: str) -> bytes:
    repository = name.partition("/")[2].rpartition(":")[0]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{front.behind}/v2/{repository}/blobs/{digest}", timeout=30) as answer:
        data: bytes = answer.read()
        return data


@pytest.mark.parametrize("compress", [True, False])
def test_a_bundle_comes_back_the_same_byte_for_byte(
    tar: Path, name: str, tmp_path: Path, cache: BundleCache, elsewhere: BundleCache, compress: bool
) -> None:
    pushed = push(tar, name, compress=compress, cache=cache)
    digest = hashlib.sha256(tar.read_bytes()).hexdigest()
    assert pushed.bundle == f"sha256:{digest}"
    assert (pushed.layers, pushed.sent) == (2, 2)

    output = tmp_path / "pulled.tar"
    pulled = pull(name, output=output, cache=elsewhere)
    assert output.read_bytes() == tar.read_bytes()
    assert (pulled.path, pulled.bundle, pulled.reference) == (
        output,
        pushed.bundle,
        pushed.reference,
    )
    deployed = pull(name, cache=elsewhere)
    assert deployed.path == elsewhere.root / f"bundles/sha256-{digest}"
    assert listing(deployed.path) == listing(cache.open(tar).path)


@pytest.mark.parametrize("which", ["digest", "index"])
def test_a_digest_names_a_bundle_for_ever(
    tar: Path, name: str, workshop: Workshop, tmp_path: Path, cache: BundleCache, which: str
) -> None:
    first = push(tar, name, cache=cache)
    push(workshop.bundle({"extra": b"x"}).write(tmp_path / "new.tar").path, name, cache=cache)
    named = f"{name.rpartition(':')[0]}@{getattr(first, which)}"
    pull(named, output=tmp_path / "old.tar", cache=cache)
    assert (tmp_path / "old.tar").read_bytes() == tar.read_bytes()


def test_a_compressed_file_can_be_pushed_and_pulled(
    tar: Path, name: str, tmp_path: Path, cache: BundleCache
) -> None:
    packed = tmp_path / "x.tar.zst"
    packed.write_bytes(zstd.compress(tar.read_bytes()))
    push(packed, name, cache=cache)
    pull(name, output=tmp_path / "y.tar.zst", cache=cache)
    assert zstd.decompress((tmp_path / "y.tar.zst").read_bytes()) == tar.read_bytes()
    (tmp_path / "folder").mkdir()
    pulled = pull(name, output=tmp_path / "folder", cache=cache)
    assert pulled.path.name == "hello-world-0.1.0-linux-amd64.bundle.tar"
    assert pulled.path.read_bytes() == tar.read_bytes()


def test_the_artifact_is_one_that_other_tools_understand(
    tar: Path, name: str, front: Front, tmp_path: Path, cache: BundleCache
) -> None:
    pushed = push(tar, name, compress=False, cache=cache)
    index = document(front, name, "1.0")
    assert index["mediaType"] == "application/vnd.oci.image.index.v1+json"
    (entry,) = index["manifests"]
    assert entry["platform"] == {"os": "linux", "architecture": "amd64"}
    assert entry["digest"] == pushed.digest

    manifest = document(front, name, pushed.digest)
    assert manifest == document(front, name, "1.0-linux-amd64")
    assert manifest["artifactType"] == "application/vnd.agentix.bundle.v1"
    assert manifest["annotations"]["org.opencontainers.image.title"] == "hello-world"
    assert manifest["annotations"]["org.opencontainers.image.version"] == "0.1.0"
    with tarfile.open(tar) as whole:
        first = whole.extractfile("manifest.json")
        assert first is not None
        assert blob(front, name, manifest["config"]["digest"]) == first.read()
    for layer, store_path in zip(
        manifest["layers"], sorted(map(store_name, ("bundle", "python-3.11"))), strict=True
    ):
        file = tmp_path / "layer.tar"
        file.write_bytes(blob(front, name, layer["digest"]))
        assert layer["size"] == file.stat().st_size
        assert layer["annotations"]["org.opencontainers.image.title"] == f"{store_path}.tar"
        with tarfile.open(file) as part:
            assert {each.name.split("/")[2] for each in part} == {store_path}


def test_what_is_there_is_not_sent_again(
    tar: Path, name: str, front: Front, workshop: Workshop, tmp_path: Path, cache: BundleCache
) -> None:
    push(tar, name, cache=cache)
    assert len(front.uploads()) == 3, "two layers and the manifest.json"
    front.clear()
    again = push(tar, name, cache=cache)
    assert (front.uploads(), again.sent, again.size) == ([], 0, 0)

    edited = root_tree() | {"source.py": b"print('edited')\n"}
    front.clear()
    other = workshop.bundle(root=edited).write(tmp_path / "edited.tar").path
    pushed = push(other, name, cache=cache)
    assert len(front.uploads()) == 2, "the layer that changed, and the manifest.json"
    assert pushed.sent == 1


def test_what_another_repository_has_is_mounted(
    tar: Path, name: str, front: Front, cache: BundleCache
) -> None:
    push(tar, name, cache=cache)
    front.clear()
    other = name.replace("/test/", "/other/")
    pushed = push(tar, other, cache=cache)
    assert (pushed.mounted, pushed.sent) == (2, 0)
    assert len(front.uploads()) == 1, "the manifest.json"
    mounts = [each.query for each in front.seen if "mount" in each.query]
    assert {each["from"] for each in mounts} == {name.partition("/")[2].rpartition(":")[0]}


def test_a_repository_that_has_nothing_to_mount_any_more_is_no_obstacle(
    tar: Path, name: str, front: Front, cache: BundleCache
) -> None:
    push(tar, name, cache=cache)
    (file,) = (cache.root / "pushed").iterdir()
    known = json.loads(file.read_text())
    file.write_text(json.dumps(dict.fromkeys(known, "never/was")))
    pushed = push(tar, name.replace("/test/", "/third/"), cache=cache)
    assert (pushed.mounted, pushed.sent) == (0, 2)


def test_what_the_cache_has_of_a_bundle_is_not_fetched(
    tar: Path,
    name: str,
    front: Front,
    workshop: Workshop,
    tmp_path: Path,
    cache: BundleCache,
    elsewhere: BundleCache,
) -> None:
    push(tar, name, cache=cache)
    edited = workshop.bundle(root=root_tree() | {"source.py": b"edited"})
    other = edited.write(tmp_path / "edited.tar").path
    push(other, f"{name}-edited", cache=cache)
    pull(name, cache=elsewhere)
    front.clear()
    pulled = pull(f"{name}-edited", output=tmp_path / "pulled.tar", cache=elsewhere)
    assert (tmp_path / "pulled.tar").read_bytes() == other.read_bytes()
    assert (pulled.fetched, len(front.fetched())) == (1, 2)

    front.clear()
    pulled = pull(f"{name}-edited", cache=elsewhere)
    assert (pulled.fetched, len(front.fetched())) == (1, 2), "one layer and the manifest.json"
    front.clear()
    pulled = pull(f"{name}-edited", cache=elsewhere)
    assert (pulled.fetched, len(front.fetched())) == (0, 1), "it is there"


def test_a_file_is_pulled_where_there_can_be_no_cache(
    tar: Path, name: str, tmp_path: Path, cache: BundleCache
) -> None:
    push(tar, name, cache=cache)
    (tmp_path / "file").touch()
    pull(name, output=tmp_path / "out.tar", cache=BundleCache(tmp_path / "file/cache"))
    assert (tmp_path / "out.tar").read_bytes() == tar.read_bytes()


def test_a_large_bundle_takes_little_memory(
    name: str, workshop: Workshop, tmp_path: Path, cache: BundleCache, elsewhere: BundleCache
) -> None:
    import tracemalloc

    bundle = workshop.bundle({"large": os.urandom(32 << 20), "zeros": bytes(32 << 20)})
    tar = bundle.write(tmp_path / "large.tar").path
    cache.deploy(tar)
    tracemalloc.start()
    try:
        push(tar, name, cache=cache)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
        tracemalloc.reset_peak()
        assert pull(name, cache=elsewhere).fetched == 4
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_skopeo_copies_it_from_repository_to_repository(
    tar: Path, name: str, front: Front, tmp_path: Path, cache: BundleCache, elsewhere: BundleCache
) -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed (tools/setup.sh tests installs it)")
    push(tar, name, cache=cache)
    other = name.replace("/test/", "/copied/")
    subprocess.run(
        ["skopeo", "--insecure-policy", "copy", "--all", "--src-tls-verify=false",
         "--dest-tls-verify=false", f"docker://{name}", f"docker://{other}"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    pull(other, output=tmp_path / "out.tar", cache=elsewhere)
    assert (tmp_path / "out.tar").read_bytes() == tar.read_bytes()


def test_the_commands_on_the_page_do_what_it_says(tar: Path, front: Front, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/distribution.md").read_text()
    commands = re.findall(r"^    (agentix bundle .*)$", page, re.MULTILINE)
    (tmp_path / "dist").mkdir()
    file = tmp_path / "dist/hello-world-0.1.0-linux-amd64.bundle.tar"
    content = tar.rename(file).read_bytes()
    printed = []
    for command in commands:
        words = command.replace("registry.example", front.address).split()[1:]
        if "--output" in words:
            file.unlink()
        words += ["--platform", "linux/amd64"] if "pull" in words else []
        ran = subprocess.run(
            [sys.executable, "-c", "from agentix.cli import main; main()", *words],
            cwd=tmp_path, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        printed.append(ran.stdout.splitlines())
    digest = hashlib.sha256(content).hexdigest()
    assert printed[0][0].startswith(f"{front.address}/team/hello-world@sha256:")
    assert BundleCache().open(printed[1][0]).digest == digest
    assert file.read_bytes() == content
    assert [lines[1] for lines in printed] == [f"sha256:{digest}"] * 3


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("hello", "does not say which registry"),
        ("user/hello:1", "does not say which registry"),
        ("127.0.0.1:5000/Hello", "is no name at a registry"),
        ("127.0.0.1:5000/x@sha256:abc", "is no name at a registry"),
        ("docker://127.0.0.1:5000/x", "is no name at a registry"),
        ("127.0.0.1:5000/x@sha256:" + "a" * 64, "a push makes a tag"),
        ("127.0.0.1:5000/x:" + "t" * 120, "may have 116 characters"),
        ("", "is no name at a registry"),
        ("a\nb", "is no name at a registry"),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_anything_happens(
    tar: Path, reference: str, problem: str, cache: BundleCache, home: Path
) -> None:
    with pytest.raises(DistributionError, match=problem) as caught:
        push(tar, reference, cache=cache, patience=QUICK)
    assert "\n" not in str(caught.value)


def test_what_is_not_there_is_said(name: str, cache: BundleCache) -> None:
    with pytest.raises(DistributionError, match="check the name and the tag"):
        pull(name, cache=cache)


ARM = {**INFO, "platform": "linux/arm64"}


def test_both_platforms_are_under_one_tag(
    tar: Path, name: str, workshop: Workshop, front: Front, tmp_path: Path, cache: BundleCache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    other = workshop.bundle(root=root_tree(ARM)).write(tmp_path / "arm.tar").path
    push(tar, name, cache=cache)
    pushed = push(other, name, cache=cache)
    assert pushed.sent == 1, "what both have in common is there"
    assert len(document(front, name, "1.0")["manifests"]) == 2
    for platform, expected in (("linux/amd64", tar), ("linux/arm64", other)):
        pull(name, platform=platform, output=tmp_path / "out.tar", cache=cache)
        assert (tmp_path / "out.tar").read_bytes() == expected.read_bytes()

    with monkeypatch.context() as patch:
        patch.setattr("platform.machine", lambda: "riscv64")
        with pytest.raises(DistributionError, match=r"riscv64.*choose a bundle with --platform"):
            pull(name, cache=cache)

    newer = workshop.bundle(root=root_tree() | {"source.py": b"edited"})
    push(newer.write(tmp_path / "newer.tar").path, name, cache=cache)
    assert len(document(front, name, "1.0")["manifests"]) == 2
    pull(name, platform="linux/amd64", output=tmp_path / "out.tar", cache=cache)
    assert (tmp_path / "out.tar").read_bytes() == (tmp_path / "newer.tar").read_bytes()


def test_a_tag_does_not_mean_two_versions_at_once(
    tar: Path, name: str, workshop: Workshop, front: Front, tmp_path: Path, cache: BundleCache
) -> None:
    push(tar, name, cache=cache)
    newer = workshop.bundle(root=root_tree({**ARM, "version": "0.2.0"}))
    push(newer.write(tmp_path / "arm.tar").path, name, cache=cache)
    (entry,) = document(front, name, "1.0")["manifests"]
    assert entry["platform"]["architecture"] == "arm64"
    with pytest.raises(DistributionError, match="is for linux/arm64, not for linux/amd64"):
        pull(name, platform="linux/amd64", output=tmp_path / "out.tar", cache=cache)
    with pytest.raises(DistributionError, match="choose one of linux/amd64"):
        pull(name, platform="linux/riscv", output=tmp_path / "out.tar", cache=cache)


def test_pushes_for_two_platforms_at_once_are_both_under_the_tag(
    tar: Path, name: str, workshop: Workshop, front: Front, tmp_path: Path, cache: BundleCache
) -> None:
    """One is held back right before it writes the index, until the other has written its own."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Event

    other = workshop.bundle(root=root_tree(ARM)).write(tmp_path / "arm.tar").path
    cache.deploy(other)
    first_waits, second_done = Event(), Event()

    def hold_back(request: Any) -> None:
        if request.method == "PUT" and request.path.endswith("/manifests/1.0"):
            front.meddle = lambda _: None
            first_waits.set()
            second_done.wait(60)

    front.meddle = hold_back
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(push, tar, name, cache=cache)
        assert first_waits.wait(60)
        # Past the front, which is being held.
        two = pool.submit(push, other, name.replace(front.address, front.behind[7:]), cache=cache)
        two.result(60)
        second_done.set()
        one.result(60)
    assert len(document(front, name, "1.0")["manifests"]) == 2
