"""Killed, interrupted, or out of space: nothing half-made stays, and the next run continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from bundle.disk import small_disk_at

from agentix.bundle import BundleCache
from agentix.distribution import pull, push
from agentix.errors import BundleError
from distribution.conftest import QUICK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aiohttp import web
    from bundle.handmade import Workshop

    from distribution.front import Front


@pytest.fixture
def large(workshop: Workshop, tmp_path: Path) -> Path:
    bundle = workshop.bundle({"a": os.urandom(1 << 20), "large": os.urandom(8 << 20)})
    return bundle.write(tmp_path / "large.tar").path


class Stuck:
    """Lets the large layer pass up to a point, says so, and then lets nothing pass."""

    def __init__(self, front: Front, method: str) -> None:
        self.reached = threading.Event()
        self._method = method
        front.throttle = self

    def __call__(self, request: web.Request, passed: int) -> bool:
        if request.method != self._method or "/blobs/" not in request.path or passed < 2 << 20:
            return False
        self.reached.set()
        return True


def agentix(*words: object, cache: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from agentix.cli import main; main()", *map(str, words)]
    return subprocess.Popen(
        command,
        env={**os.environ, "AGENTIX_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_push_that_is_ended_half_way_is_gone_on_with(
    front: Front, name: str, large: Path, cache: BundleCache, how: signal.Signals
) -> None:
    cache.deploy(large)
    stuck = Stuck(front, "PUT")
    process = agentix("bundle", "push", large, name, cache=cache.root)
    assert stuck.reached.wait(60)
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[how]
    assert "Traceback" not in said
    front.clear()
    assert 1 <= push(large, name, cache=cache, patience=QUICK).sent <= 4
    assert not list((cache.root / "staging").glob("*"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("output", [True, False])
def test_a_pull_that_is_ended_half_way_leaves_nothing(
    front: Front, name: str, large: Path, cache: BundleCache, tmp_path: Path, how: signal.Signals,
    output: bool,
) -> None:  # fmt: skip
    push(large, name, cache=cache)
    stuck = Stuck(front, "GET")
    there = BundleCache(tmp_path / "there")
    file = tmp_path / "out/pulled.tar"
    file.parent.mkdir()
    words = ["--output", file] if output else []
    process = agentix("bundle", "pull", name, *words, cache=there.root)
    assert stuck.reached.wait(60)
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[how]
    assert "Traceback" not in said
    if how is not signal.SIGKILL:
        assert list(file.parent.iterdir()) == []
        assert list((there.root / "staging").glob("*")) == []
    assert list((there.root / "bundles").glob("*")) == []
    front.clear()
    pull(name, output=file if output else None, cache=there, patience=QUICK)
    assert list((there.root / "staging").glob("*")) == []
    if output:
        assert list(file.parent.iterdir()) == [file]
        assert file.read_bytes() == large.read_bytes()
    else:
        assert there.deploy(large) == there.open(next((there.root / "bundles").iterdir()))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of three megabytes."""
    with small_disk_at(tmp_path / "disk", "size=3m") as folder:
        yield folder


def test_a_full_disk_is_said_and_nothing_is_left(
    name: str, large: Path, tar: Path, cache: BundleCache, small_disk: Path
) -> None:
    push(large, name, cache=cache)
    there = BundleCache(small_disk / "cache")
    with pytest.raises(
        BundleError, match=r"it takes 9\..* MB are free there; free some space there"
    ):
        pull(name, cache=there)
    assert list((there.root / "bundles").glob("*")) == []
    assert list((there.root / "staging").glob("*")) == []
    with pytest.raises(BundleError, match=r"cannot write .*/x\.tar: it takes 9\..* MB are free"):
        pull(name, output=small_disk / "x.tar", cache=there)
    with pytest.raises(BundleError, match=r"cannot write .*/x\.zst: No space left on device"):
        pull(name, output=small_disk / "x.zst", cache=there)
    assert [path.name for path in small_disk.iterdir()] == ["cache"]
    push(tar, f"{name}-small", cache=cache)
    pull(f"{name}-small", cache=there)


def test_a_store_path_that_was_altered_in_the_cache_is_not_sent(
    name: str, tar: Path, front: Front, cache: BundleCache
) -> None:
    entry = cache.deploy(tar)
    (file,) = (entry.nix / "store").glob("*-python-3.11/lib/libc.so.6")
    file.chmod(0o644)
    file.write_bytes(b"y" * 5000)
    with pytest.raises(BundleError, match=r"was altered in the cache; remove .* and deploy"):
        push(entry.path, name, cache=cache, patience=QUICK)
    assert not any("/manifests/" in each.path for each in front.seen)
