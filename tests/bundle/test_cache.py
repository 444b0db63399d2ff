"""One folder a bundle: complete or absent, found again whichever way it is asked for."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import eventually

from agentix.bundle import BundleCache, cache_root, reader
from agentix.errors import BundleError
from bundle.handmade import END, listing, parts, root_tree, store_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix.bundle import CachedBundle
    from bundle.handmade import Bundle, Workshop


def settle(path: Path) -> None:
    """Wait until *path* is old enough to be remembered."""
    changed = path.stat().st_ctime_ns
    eventually(lambda: time.time_ns() - changed >= 200_000_000, "it is old enough", within=10)


def leftovers(cache: BundleCache) -> list[str]:
    """What is in the cache beside complete bundles, what they share, and what is remembered."""
    known = {"bundles", "store", "memory", "staging"}
    above = [path.name for path in cache.root.iterdir() if path.name not in known]
    return above + [path.name for path in (cache.root / "staging").rglob("*")]


def test_a_deployed_bundle_is_all_that_its_manifest_says(
    bundle: Bundle, tar: Path, cache: BundleCache
) -> None:
    entry = cache.deploy(tar)
    assert entry.path == cache.root / "bundles" / entry.ref
    assert entry.nix == entry.path / "nix"
    assert entry.ref == f"sha256-{entry.digest}"
    output = subprocess.run(["sha256sum", tar], capture_output=True, check=True, text=True).stdout
    assert entry.digest == output.split()[0]
    assert json.loads(entry.manifest.to_bytes()) == bundle.manifest()
    assert leftovers(cache) == []


def test_a_second_deploy_changes_nothing(tar: Path, cache: BundleCache) -> None:
    first = cache.deploy(tar)

    def changed() -> dict[Path, int]:
        files = (path for path in first.path.rglob("*") if path.name != "lease")
        return {path: path.lstat().st_ctime_ns for path in files}

    before = changed()
    assert cache.deploy(tar) == first
    assert BundleCache(cache.root).deploy(tar) == first
    assert changed() == before


def test_an_unchanged_tar_is_not_even_read_again(
    tar: Path, cache: BundleCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tar)
    first = cache.deploy(tar)
    monkeypatch.setattr(os, "pread", lambda *_: pytest.fail("the tar was read"))
    assert cache.deploy(tar) == first


def test_a_tar_that_changed_is_read_again_even_when_it_was_dated_back(
    tar: Path, cache: BundleCache
) -> None:
    settle(tar)
    cache.deploy(tar)
    before = tar.stat()
    with tar.open("r+b") as file:
        file.seek(before.st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(tar, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(BundleError):
        cache.deploy(tar)


def test_a_tar_fresh_from_the_press_is_not_remembered(tar: Path, cache: BundleCache) -> None:
    """Within one tick of the clock it could change without a trace."""
    tar.touch()
    cache.deploy(tar)
    data = bytearray(tar.read_bytes())
    data[len(data) // 2] ^= 1
    stamp = tar.stat()
    tar.write_bytes(data)
    os.utime(tar, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with pytest.raises(BundleError):
        cache.deploy(tar)


def test_a_copy_of_the_tar_is_hashed_but_not_unpacked(
    tar: Path, cache: BundleCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cache.deploy(tar)
    copy = Path(shutil.copy(tar, tmp_path / "copy.tar"))
    monkeypatch.setattr(
        reader, "read_bundle", lambda *_, **__: pytest.fail("it was unpacked again")
    )
    assert cache.deploy(copy) == first


def test_a_damaged_copy_of_a_deployed_bundle_is_refused(
    tar: Path, cache: BundleCache, tmp_path: Path
) -> None:
    first = cache.deploy(tar)
    copy = tmp_path / "copy.tar"
    copy.write_bytes(tar.read_bytes()[:-1])
    with pytest.raises(BundleError, match="truncated"):
        cache.deploy(copy)
    assert cache.open(first.ref) == first
    assert leftovers(cache) == []


def test_expected_digests_are_compared_before_anything_is_visible(
    tar: Path, cache: BundleCache
) -> None:
    wrong = "0" * 64
    with pytest.raises(BundleError, match=f"but sha256-{wrong} was expected"):
        cache.deploy(tar, expect=wrong)
    assert not list((cache.root / "bundles").glob("*"))
    digest = cache.deploy(tar).digest
    for spelled in (digest, f"sha256:{digest}", f"sha256-{digest}"):
        assert cache.deploy(tar, expect=spelled).digest == digest
    with pytest.raises(BundleError, match="was expected"):
        cache.deploy(tar, expect=wrong)
    with pytest.raises(BundleError, match="is not the digest of a bundle"):
        cache.deploy(tar, expect="md5-x")


def test_after_a_refusal_the_good_bundle_deploys(
    workshop: Workshop, tar: Path, cache: BundleCache, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.tar"
    without = workshop.bundle(root=root_tree() | {"runtime": {}})
    bad.write_bytes(b"".join(part.raw for part in parts(without)) + END)
    with pytest.raises(BundleError, match=r"cannot deploy .*bad.tar: its root .* no executable"):
        cache.deploy(bad)
    assert list((cache.root / "bundles").glob("*")) == []
    assert leftovers(cache) == []
    cache.deploy(tar)


@pytest.mark.parametrize(
    "damage", ["manifest", "runtime", "run", "store path", "bootstrap", "file"]
)
def test_an_incomplete_entry_is_replaced(tar: Path, cache: BundleCache, damage: str) -> None:
    settle(tar)
    first = cache.deploy(tar)
    whole = listing(first.path)
    python = first.nix / "store" / store_name("python-3.11")
    match damage:
        case "manifest":
            (first.path / "manifest.json").unlink()
        case "runtime":
            (first.nix / "runtime").unlink()
        case "run":
            (first.nix / "run").rmdir()
        case "store path":
            shutil.rmtree(python)
        case "bootstrap":
            (first.nix / "store" / store_name("bundle") / "runtime/bootstrap.sh").unlink()
        case "file":
            shutil.rmtree(first.path)
            first.path.write_text("not a folder")
    with pytest.raises(BundleError):
        cache.open(first.ref)
    again = cache.deploy(tar)
    assert again == first
    assert listing(again.path) == whole
    assert leftovers(cache) == []


def test_a_half_entry_of_something_else_is_replaced(tar: Path, cache: BundleCache) -> None:
    first = cache.deploy(tar)
    shutil.rmtree(first.path)
    (first.path / "nix/store").mkdir(parents=True)
    (first.path / "nix").chmod(0o555)
    first.path.chmod(0o555)
    assert cache.deploy(tar) == first
    assert cache.open(first.ref) == first
    assert leftovers(cache) == []


# What open() takes


def test_every_way_to_name_a_bundle_gives_the_same_entry(
    tar: Path, cache: BundleCache, tmp_path: Path
) -> None:
    entry = cache.open(tar)
    link = tmp_path / "latest"
    link.symlink_to(entry.path)
    for ref in (str(tar), entry.ref, f"sha256:{entry.digest}", entry.path, str(entry.path), link):
        assert cache.open(ref) == entry
    assert BundleCache(tmp_path / "elsewhere").open(entry.path) == entry


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: None, "No such file"),
        (
            lambda path: path.mkdir(),
            "is not a bundle: neither a .bundle.tar, nor a deployed bundle",
        ),
        (lambda path: path.write_bytes(b""), "it is truncated"),
        (
            lambda path: path.write_bytes(b"#!/bin/sh\n" * 100),
            "is not a bundle made by agentix build",
        ),
        (lambda path: os.mkfifo(path), "is not a file"),
        (lambda path: path.symlink_to("nowhere"), "No such file"),
    ],
    ids=["missing", "folder", "empty", "script", "fifo", "dangling"],
)
def test_what_is_no_bundle_is_said_in_one_line(
    cache: BundleCache, tmp_path: Path, make: Callable[[Path], None], problem: str
) -> None:
    path = tmp_path / "thing"
    make(path)
    with pytest.raises(BundleError) as caught:
        cache.open(path)
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not cache.root.exists()


def test_an_unknown_digest_says_what_to_do(tar: Path, cache: BundleCache) -> None:
    cache.deploy(tar)
    with pytest.raises(BundleError) as caught:
        cache.open("sha256-" + "0" * 64)
    assert "is not deployed here (1 other is in " in str(caught.value)
    assert "agentix deploy BACKEND FILE.bundle.tar" in str(caught.value)


def test_a_built_bundle_outside_the_store_is_refused(bundle: Bundle, cache: BundleCache) -> None:
    copy = bundle.folder.parent.parent / "copy"
    shutil.copytree(bundle.root, copy, symlinks=True)
    with pytest.raises(BundleError, match="a copy outside /nix/store"):
        cache.open(copy)


def test_store_paths_give_the_entry_that_their_tar_gives(
    bundle: Bundle, tar: Path, tmp_path: Path
) -> None:
    direct = BundleCache(tmp_path / "direct")
    through = BundleCache(tmp_path / "through")
    first, second = direct.deploy_store_path(bundle.root, bundle.closure), through.deploy(tar)
    assert first.digest == second.digest
    assert listing(first.path) == listing(second.path)
    assert leftovers(direct) == []
    assert direct.deploy_store_path(bundle.root, bundle.closure) == first
    assert direct.deploy(tar) == first


def test_a_modified_store_path_is_not_deployed(bundle: Bundle, cache: BundleCache) -> None:
    victim = bundle.closure[0].path / "lib/libc.so.6"
    victim.chmod(0o644)
    victim.write_bytes(b"y" * 5000)
    with pytest.raises(BundleError, match=r"cannot deploy .*: .*is not what Nix recorded"):
        cache.deploy_store_path(bundle.root, bundle.closure)
    assert list((cache.root / "bundles").glob("*")) == []
    assert leftovers(cache) == []


@pytest.mark.nix
def test_a_result_of_nix_build_deploys_as_it_is(cache: BundleCache, tmp_path: Path) -> None:
    from agentix.bundle import write_bundle
    from agentix.nix import closure

    info = json.dumps(json.dumps(json.loads(root_tree()["info.json"])))
    expression = tmp_path / "bundle.nix"
    expression.write_text(
        """
        let
          tool = builtins.toFile "tool" "a store path that the bundle refers to\\n";
        in derivation {
          name = "bundle"; system = builtins.currentSystem; builder = "/bin/sh";
          inherit tool; info = INFO;
          args = [ "-c" ''
            PATH=/usr/bin:/bin; mkdir -p $out/runtime; printf %s "$info" > $out/info.json
            echo "#!/bin/sh # $tool" > $out/runtime/bootstrap.sh; chmod +x $out/runtime/bootstrap.sh
          '' ];
        }
        """.replace("INFO", info)
    )
    result = tmp_path / "result"
    options = ["--option", "sandbox", "false", "--option", "substitute", "false"]
    if os.geteuid() == 0:
        options += ["--option", "build-users-group", ""]
    command = ["nix-build", str(expression), "--out-link", str(result), *options]
    built = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if built.returncode != 0 and os.geteuid() != 0:
        pytest.skip("this Nix does not let its user build without a sandbox")
    assert built.returncode == 0, built.stderr
    entry = cache.open(result)
    assert len(entry.manifest.closure) == 2
    assert entry.nix.joinpath("store", entry.manifest.root, "runtime/bootstrap.sh").is_file()
    written = write_bundle(result.resolve(), closure(result.resolve()), tmp_path / "x.tar")
    assert written.sha256 == entry.digest
    assert cache.open(result) == cache.open(written.path) == entry


# Where it is


def test_odd_places_work(tar: Path, tmp_path: Path) -> None:
    cache = BundleCache(tmp_path / "a:colon, a space\nand ünïcode")
    entry = cache.deploy(tar)
    assert cache.open(entry.ref) == cache.open(entry.path) == entry


def test_the_place_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "chosen"))
    assert BundleCache().root == cache_root() == tmp_path / "chosen"
    monkeypatch.setenv("AGENTIX_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert BundleCache().root == cache_root() == tmp_path / "xdg/agentix"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTIX_CACHE_DIR", "relative")
    assert cache_root() == tmp_path / "relative"


def test_another_platform_is_refused_with_what_to_build(tar: Path, cache: BundleCache) -> None:
    entry: CachedBundle = cache.deploy(tar)
    entry.check_platform("linux/amd64")
    with pytest.raises(BundleError) as caught:
        entry.check_platform("linux/arm64")
    assert str(caught.value) == (
        "bundle hello-world 0.1.0 is for linux/amd64, not for linux/arm64;"
        " build it with: agentix build --platform linux/arm64"
    )


def test_a_bundle_of_another_protocol_is_refused_before_anything_starts(
    tar: Path, cache: BundleCache
) -> None:
    entry = cache.deploy(tar)
    entry.check_protocol()
    other = entry.manifest.model_copy(update={"protocol": 1, "agentix": "0.0.9"})
    with pytest.raises(BundleError) as caught:
        dataclasses.replace(entry, manifest=other).check_protocol()
    said = str(caught.value)
    assert said.startswith("bundle hello-world 0.1.0 speaks protocol 1 (agentix 0.0.9) and this")
    assert said.endswith("rebuild the bundle with: agentix build")
    assert "\n" not in said
