"""The bundle of a sandbox is held by whoever made it, until it is gone, and no longer."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from typing import TYPE_CHECKING

import pytest
from stub_runtime import make_tar, python

from agentix.bundle import BundleCache
from agentix.bundle.collecting import collect
from agentix.provider.local import LocalProvider
from agentix.provider.runtime_folder import RuntimeFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentix.provider.base import Sandbox, SandboxConfig


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="ax") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BundleCache:
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    cache = BundleCache(tmp_path / "cache")
    cache.deploy(make_tar(tmp_path))
    return cache


def collected(cache: BundleCache) -> int:
    """Remove everything that is not in use, and say how much that was."""
    return len(collect(cache.root, older_than=0).removed)


def create(cache: BundleCache) -> RuntimeFolder:
    [path] = (cache.root / "bundles").iterdir()
    return RuntimeFolder.create("test", "an image", cache.open(path))


def test_a_bundle_is_held_as_long_as_a_sandbox_of_it_is_there(cache: BundleCache) -> None:
    one, other = create(cache), create(cache)
    assert collected(cache) == 0
    one.remove()
    assert collected(cache) == 0, "the other one has it, too"
    other.remove()
    assert collected(cache) == 1


def test_what_another_process_has_deleted_is_let_go_at_the_next_creation(
    cache: BundleCache,
) -> None:
    folder = create(cache)
    folder.path.rename(folder.path.with_name("elsewhere"))
    RuntimeFolder.create("test").remove()
    assert collected(cache) == 0, "nobody has looked yet"
    another = create(cache)
    another.remove()
    assert collected(cache) == 1


def test_a_forked_process_has_no_part_in_it(cache: BundleCache) -> None:
    folder = create(cache)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent is done
        os._exit(0)
    try:
        folder.remove()
        assert collected(cache) == 1
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


MAKER = """
    import sys
    from agentix.bundle import BundleCache
    from agentix.provider.runtime_folder import RuntimeFolder
    folder = RuntimeFolder.create("test", "an image", BundleCache().open(sys.argv[1]))
    print(folder.sandbox_id, flush=True)
    sys.stdin.read()
"""


def test_who_is_killed_holds_nothing_any_more(cache: BundleCache) -> None:
    [path] = (cache.root / "bundles").iterdir()
    maker = subprocess.Popen(
        python(MAKER, path.name), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with maker:
        assert maker.stdout is not None
        assert maker.stdout.readline().startswith("test-")
        assert collected(cache) == 0
        maker.send_signal(signal.SIGKILL)
    assert collected(cache) == 1


async def test_a_creation_that_fails_lets_go(cache: BundleCache) -> None:
    [path] = (cache.root / "bundles").iterdir()

    class Failing(LocalProvider):
        name = "failing"
        grace = 0.0

        async def create(self, config: SandboxConfig) -> Sandbox:
            async with self.making("an image", cache.open(path)):
                assert collected(cache) == 0
                raise OSError("it does not start")

    with pytest.raises(OSError, match="does not start"):
        await Failing().create(None)  # type: ignore[arg-type]
    assert collected(cache) == 1
