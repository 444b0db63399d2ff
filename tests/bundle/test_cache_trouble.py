"""Deploys at once, killed, without space, without permission: an entry is whole or not there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from left_over import nothing_left

from agentix.bundle import BundleCache, staging, write_bundle
from agentix.bundle.folder import Folder
from agentix.bundle.reader import read_bundle
from agentix.bundle.view import look_into
from agentix.errors import BundleError
from bundle.disk import small_disk_at
from bundle.handmade import listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bundle.handmade import Bundle, Workshop

DEPLOY = """
import sys
from pathlib import Path
from agentix.bundle import BundleCache
sys.stdin.readline()
print(BundleCache(Path(sys.argv[1])).deploy(Path(sys.argv[2])).ref)
"""

# Stops in the middle of the unpacking, says so, and waits to be killed.
STUCK = """
import sys
from pathlib import Path
from agentix.bundle import BundleCache
from agentix.bundle.folder import Folder
count, make = 0, Folder.file
def file(*args, **kwargs):
    global count
    count += 1
    if count == 4:
        print("stuck", flush=True)
        sys.stdin.readline()
    return make(*args, **kwargs)
Folder.file = file
print(BundleCache(Path(sys.argv[1])).deploy(Path(sys.argv[2])).ref)
"""


def start(script: str, cache: BundleCache, tar: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), str(cache.root), str(tar)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def inside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_processes_that_deploy_at_once_share_one_entry(tar: Path, cache: BundleCache) -> None:
    processes = [start(DEPLOY, cache, tar) for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    results = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert inside(cache.root / "bundles") == [results[0]] == sorted(set(results))
    assert inside(cache.root / "staging") == []


@pytest.mark.parametrize("source", ["tar", "store path"])
def test_threads_that_deploy_at_once_unpack_once(
    bundle: Bundle, tar: Path, cache: BundleCache, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    unpacked = []

    def counting(chunks: Iterator[bytes], into: Path, *others: Any) -> object:
        unpacked.append(into)
        return read_bundle(chunks, into, *others)

    monkeypatch.setattr("agentix.bundle.reader.read_bundle", counting)
    barrier = threading.Barrier(8)

    def deploy() -> str:
        barrier.wait(30)
        mine = BundleCache(cache.root)
        if source == "tar":
            return mine.open(tar).ref
        return mine.deploy_store_path(bundle.root, bundle.closure).ref

    with ThreadPoolExecutor(8) as pool:
        refs = {future.result(60) for future in [pool.submit(deploy) for _ in range(8)]}
    assert len(refs) == 1
    assert len(unpacked) == 1
    assert inside(cache.root / "staging") == []


def test_what_a_killed_deploy_left_is_removed_by_the_next(
    tar: Path, workshop: Workshop, cache: BundleCache, tmp_path: Path
) -> None:
    process = start(STUCK, cache, tar)
    assert process.stdout is not None
    assert process.stdout.readline() == "stuck\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert len(inside(cache.root / "staging")) == 2, "the folder and its lock"
    assert inside(cache.root / "bundles") == []

    other = workshop.bundle({"extra": b"another bundle"}).write(tmp_path / "other.tar")
    cache.deploy(other.path)
    assert inside(cache.root / "staging") == []

    first = cache.deploy(tar)
    assert cache.open(first.ref) == first


def test_the_same_bundle_deploys_after_a_kill(tar: Path, cache: BundleCache) -> None:
    process = start(STUCK, cache, tar)
    assert process.stdout is not None
    assert process.stdout.readline() == "stuck\n"
    process.kill()
    process.communicate(timeout=60)
    cache.deploy(tar)
    assert inside(cache.root / "staging") == []


def test_a_living_deploy_is_left_alone_and_waited_for(
    tar: Path, workshop: Workshop, cache: BundleCache, tmp_path: Path
) -> None:
    process = start(STUCK, cache, tar)
    assert process.stdout is not None
    assert process.stdout.readline() == "stuck\n"
    held = inside(cache.root / "staging")

    other = workshop.bundle({"extra": b"another bundle"}).write(tmp_path / "other.tar")
    cache.deploy(other.path)
    assert inside(cache.root / "staging") == held, "it belongs to a living process"

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cache.deploy, tar)
        assert not waiting.done()
        output, _ = process.communicate("go on\n", timeout=60)
        assert waiting.result(60).ref == output.strip()
    assert inside(cache.root / "staging") == []


def test_waiting_for_another_deploy_has_a_bound(tmp_path: Path) -> None:
    with (
        staging.hold(tmp_path / "staging", "key"),
        pytest.raises(BundleError, match="another process has been preparing the same"),
        staging.hold(tmp_path / "staging", "key", patience=0.05),
    ):
        pytest.fail("two have the same folder")


def test_waiting_for_another_deploy_ends_when_nobody_wants_it_any_more(tmp_path: Path) -> None:
    asked: list[None] = []

    def check() -> None:
        asked.append(None)
        if len(asked) > 3:
            raise InterruptedError

    with (
        staging.hold(tmp_path / "staging", "key"),
        pytest.raises(InterruptedError),
        staging.hold(tmp_path / "staging", "key", check=check),
    ):
        pytest.fail("two have the same folder")
    assert list((tmp_path / "staging").iterdir()) == []


def test_holders_exclude_one_another_also_while_locks_come_and_go(tmp_path: Path) -> None:
    """The lock file is removed by each holder, which must not let two in."""
    inside = 0
    problems = []

    def work() -> None:
        nonlocal inside
        for _ in range(25):
            with staging.hold(tmp_path / "staging", "key") as folder:
                inside += 1
                if inside != 1 or list(folder.iterdir()):
                    problems.append(inside)
                (folder / "x").write_text("x")
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert list((tmp_path / "staging").iterdir()) == []


# As an ordinary user


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount, and be somebody else")


def test_an_ordinary_user_deploys_fails_deploys_again_and_deletes(
    bundle: Bundle, shared_folder: Path, as_user: Callable[[Callable[[], None]], None]
) -> None:
    needs_root()
    tar = bundle.write(shared_folder / "good.tar").path
    data = tar.read_bytes()
    corrupt = shared_folder / "corrupt.tar"
    corrupt.write_bytes(data[: len(data) * 9 // 10])
    cache = BundleCache(shared_folder / "mine/cache")

    def user() -> None:
        with pytest.raises(BundleError, match="truncated"):
            cache.deploy(corrupt)
        assert inside(cache.root / "staging") == []
        entry = cache.deploy(tar)
        assert cache.open(entry.ref) == entry
        (entry.path / "manifest.json").unlink()
        assert cache.deploy(tar) == entry
        shutil.rmtree(entry.path)
        (entry.path / "nix/store").mkdir(parents=True)
        for folder in (entry.path / "nix/store", entry.path / "nix", entry.path):
            folder.chmod(0o555)
        assert cache.deploy(tar) == entry
        assert inside(cache.root / "staging") == []
        shutil.rmtree(entry.path)

    as_user(user)
    assert inside(cache.root / "bundles") == []


def test_a_cache_that_cannot_be_written_is_said_in_one_line(
    bundle: Bundle, shared_folder: Path, as_user: Callable[[Callable[[], None]], None]
) -> None:
    needs_root()
    tar = bundle.write(shared_folder / "good.tar").path
    shared_folder.chmod(0o755)

    def user() -> None:
        cache = BundleCache(shared_folder / "cache")
        with pytest.raises(BundleError) as caught:
            cache.deploy(tar)
        message = str(caught.value)
        assert "Permission denied; set AGENTIX_CACHE_DIR to a folder that you can write" in message
        assert str(cache.root) in message

    as_user(user)
    assert inside(shared_folder) == ["good.tar"]


def test_a_cache_that_cannot_be_written_still_serves_what_it_has(
    bundle: Bundle, shared_folder: Path, as_user: Callable[[Callable[[], None]], None]
) -> None:
    needs_root()
    tar = bundle.write(shared_folder / "good.tar").path
    cache = BundleCache(shared_folder / "cache")
    entry = cache.deploy(tar)
    before = listing(cache.root)

    def user() -> None:
        assert cache.open(entry.ref) == entry
        assert cache.open(tar) == entry
        copy = shared_folder / "copy.tar"
        shutil.copy(tar, copy)
        assert cache.open(copy) == entry

    as_user(user)
    assert listing(cache.root) == before


def test_a_file_in_place_of_the_cache_is_said(tar: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(BundleError, match=r"cannot deploy .* into the cache .*; set AGENTIX"):
        BundleCache(tmp_path / "cache").deploy(tar)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    with small_disk_at(tmp_path / "disk", "size=1m,nr_inodes=500") as folder:
        yield folder


def test_a_full_disk_is_said_and_nothing_is_left(
    workshop: Workshop, small_disk: Path, tmp_path: Path, tar: Path
) -> None:
    cache = BundleCache(small_disk / "cache")
    many = workshop.bundle({"many": {f"{n}": b"x" for n in range(600)}}).write(
        tmp_path / "many.tar"
    )
    with pytest.raises(BundleError) as caught:
        cache.deploy(many.path)
    message = str(caught.value)
    assert "No space left on device; free some space there, or set AGENTIX_CACHE_DIR" in message
    assert str(cache.root) in message
    assert inside(cache.root / "bundles") == inside(cache.root / "staging") == []
    entry = cache.deploy(tar)
    assert cache.open(entry.ref) == entry, "what fits can be deployed"


def test_what_does_not_fit_is_refused_before_the_disk_is_full(
    workshop: Workshop, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes of zstd can be as many zeros as they like."""
    large = workshop.bundle({"large": bytes(2_000_000)})
    tar = tmp_path / "large.tar.zst"
    write_bundle(large.root, large.closure, tar, compress=True)
    assert tar.stat().st_size < 100_000
    monkeypatch.setattr(Folder, "file", None)
    with pytest.raises(BundleError, match=r"it takes 2\.0 MB, and .* MB are free there; free some"):
        BundleCache(small_disk / "cache").deploy(tar)
    assert inside(small_disk / "cache/staging") == []
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    with pytest.raises(BundleError, match=r"it takes 2\.0 MB.*; set TMPDIR"), look_into(tar):
        pass


def test_a_full_disk_while_writing_the_tar_leaves_nothing(
    workshop: Workshop, small_disk: Path
) -> None:
    large = workshop.bundle({"large": os.urandom(2_000_000)})
    with pytest.raises(BundleError, match=r"cannot write .*/x.tar: No space left on device"):
        large.write(small_disk / "x.tar")
    assert inside(small_disk) == []


def test_a_read_only_disk_is_said(tar: Path, small_disk: Path) -> None:
    options = ["-o", "remount,ro"]
    subprocess.run(["mount", *options, str(small_disk)], check=True, timeout=60)
    with pytest.raises(BundleError, match="Read-only file system; set AGENTIX_CACHE_DIR"):
        BundleCache(small_disk / "cache").deploy(tar)


def test_an_interruption_leaves_nothing(
    tar: Path, cache: BundleCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentix.bundle.folder import Folder

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Folder, "symlink", interrupt)
    with nothing_left(), pytest.raises(KeyboardInterrupt):
        cache.deploy(tar)
    assert inside(cache.root / "bundles") == inside(cache.root / "staging") == []


def test_litter_that_cannot_be_removed_costs_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(path)

    (tmp_path / "left.lock").touch()
    monkeypatch.setattr(staging, "remove", refuse)
    with nothing_left():
        staging._sweep(tmp_path)


def test_no_descriptor_is_left_open(bundle: Bundle, tar: Path, cache: BundleCache) -> None:
    cache.deploy(tar)
    corrupt = tar.with_name("corrupt.tar")
    corrupt.write_bytes(tar.read_bytes()[:-2000])
    with nothing_left():
        for _ in range(5):
            with pytest.raises(BundleError):
                cache.deploy(corrupt)
            shutil.rmtree(cache.root)
            cache.deploy(tar)
            shutil.rmtree(cache.root)
            cache.deploy_store_path(bundle.root, bundle.closure)
