"""``agentix cache`` and ``agentix bundle verify`` say what there is, and exit as scripts expect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bundle.handmade import Workshop, store_name

from agentix.bundle import BundleCache

if TYPE_CHECKING:
    from collections.abc import Callable

PYTHON = store_name("python-3.11")


@pytest.fixture
def tars(tmp_path: Path) -> list[Path]:
    workshop = Workshop(tmp_path)
    common = {"common": b"x" * 300_000}
    return [
        workshop.bundle(common | {f"own-{number}": b"x" * 100_000})
        .write(tmp_path / f"{number}.tar")
        .path
        for number in range(2)
    ]


@pytest.fixture
def cache(tmp_path: Path) -> BundleCache:
    return BundleCache(tmp_path / "cache")


@pytest.fixture
def agentix(cache: BundleCache) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("agentix")), *map(str, words)],
            env=os.environ | {"AGENTIX_CACHE_DIR": str(cache.root), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def document(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def test_list_tells_own_bytes_from_shared_ones(
    cache: BundleCache, tars: list[Path], agentix: Any
) -> None:
    assert agentix("cache", "list").stdout == ""
    assert document(agentix("cache", "list", "--format", "json"))["bundles"] == []
    refs = [cache.deploy(tar).ref for tar in tars]
    found = document(agentix("cache", "list", "--format", "json"))
    assert {each["bundle"] for each in found["bundles"]} == set(refs)
    for each in found["bundles"]:
        assert each["size"] == each["own"] + each["shared"]
        assert each["shared"] > 300_000 > each["own"] > 100_000
        assert (each["name"], each["in_use"]) == ("hello-world", False)
        assert Path(each["path"]).is_dir()
    assert found["size"] == sum(each["own"] for each in found["bundles"]) + each["shared"]
    title, *rows = agentix("cache", "list").stdout.splitlines()
    assert title.split() == ["BUNDLE", "NAME", "PLATFORM", "SIZE", "OWN", "USED"]
    assert sorted(row.split()[0] for row in rows) == sorted(refs)
    (cache.root / "pushed").mkdir()
    (cache.root / "pushed/registry.json").write_bytes(b"x" * 2_000_000)
    notes = document(agentix("cache", "list", "--format", "json"))["notes"]
    assert 2_000_000 <= notes < 2_010_000
    assert "notes of builds and pushes, 2.0 MB" in agentix("cache", "list").stderr
    held = cache.open(refs[0])
    shown = document(agentix("cache", "list", "--format", "json"))["bundles"]
    assert {each["bundle"] for each in shown if each["in_use"]} == {held.ref}


def test_verify_names_bundle_path_and_file_and_says_what_to_do(
    cache: BundleCache, tars: list[Path], agentix: Any
) -> None:
    first, second = (cache.deploy(tar) for tar in tars)
    refs = sorted((first.ref, second.ref))
    assert agentix("cache", "verify").stdout == ""
    file = first.nix / "store" / PYTHON / "lib/libc.so.6"
    file.chmod(0o644)
    file.write_bytes(b"y" * 5000)
    del first, second
    done = agentix("cache", "verify", code=1)
    for ref in refs:
        line = f"{ref} (hello-world 0.1.0): {PYTHON}: lib/libc.so.6 differs"
        assert line in done.stdout.splitlines()
        assert f"{ref} is damaged; agentix cache verify --remove" in done.stderr
    found = document(agentix("cache", "verify", "--format", "json", code=1))
    assert [each["intact"] for each in found] == [False] * 3
    agentix("bundle", "verify", cache.root / "bundles" / refs[0], code=1)
    held = cache.open(refs[0])
    assert "it is in use" in agentix("cache", "verify", "--remove", code=1).stderr
    del held
    found = document(agentix("cache", "verify", "--remove", "--format", "json", code=1))
    assert [each["removed"] for each in found] == [True]
    agentix("deploy", "bubblewrap", tars[0])
    agentix("cache", "verify")


def test_gc_removes_what_it_said_it_would(
    cache: BundleCache, tars: list[Path], agentix: Any
) -> None:
    old, young = (cache.deploy(tar).ref for tar in tars)
    os.utime(cache.root / "bundles" / old / "lease", (0, 0))
    dry = document(agentix("cache", "gc", "--dry-run", "--format", "json"))
    assert [each["bundle"] for each in dry["removed"]] == [old]
    assert dry["freed"] > 100_000
    assert f"would remove {old}" in agentix("cache", "gc", "--dry-run").stdout
    assert len(list((cache.root / "bundles").iterdir())) == 2
    done = document(agentix("cache", "gc", "--format", "json"))
    assert {key: done[key] for key in ("removed", "freed", "size", "in_use")} == {
        key: dry[key] for key in ("removed", "freed", "size", "in_use")
    }
    assert agentix("cache", "gc", "--older-than", "1h", "--max-size", "1g").stdout == ""
    held = cache.open(young)
    shown = agentix("cache", "gc", "--max-size", "100k").stdout
    assert shown == f"in use, so it stays: {young} (hello-world 0.1.0)\n"
    del held
    assert f"removed {young}" in agentix("cache", "gc", "--all").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("--older-than", "soon"),
        ("--older-than", "3"),
        ("--older-than", "-1d"),
        ("--max-size", "20x"),
        ("--all", "--older-than", "3d"),
    ],
)
def test_gc_refuses_what_it_does_not_understand(agentix: Any, words: tuple[str, ...]) -> None:
    agentix("cache", "gc", *words, code=2)


def test_a_tar_is_verified_without_a_cache(
    cache: BundleCache, tars: list[Path], agentix: Any, tmp_path: Path
) -> None:
    digest = document(agentix("bundle", "verify", tars[0], "--format", "json"))["digest"]
    assert agentix("bundle", "verify", tars[0]).stdout.splitlines() == [
        "hello-world 0.1.0 is intact",
        digest,
    ]
    (tmp_path / "cut.tar").write_bytes(tars[0].read_bytes()[:-1])
    done = agentix("bundle", "verify", tmp_path / "cut.tar", code=1)
    assert done.stdout == f"{tmp_path}/cut.tar: it is truncated\n"
    assert not cache.root.exists()
