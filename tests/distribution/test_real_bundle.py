"""A project on its way: built, pushed, edited, pushed again, and pulled elsewhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tiny_job import AGENTIX, write_project

from agentix.bundle.compression import zstd
from distribution.front import Front

pytestmark = [pytest.mark.nix, pytest.mark.slow]
REPOSITORY = Path(__file__).parents[2]


def agentix(*words: object) -> dict[str, Any]:
    command = [*AGENTIX, *map(str, words), "--format", "json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_an_edit_sends_and_fetches_what_it_changed(
    registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Front(registry) as front:
        follow(front, tmp_path, monkeypatch)


def follow(front: Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{front.address}/real/tiny-job:1.0"
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    clone = ["git", "clone", "--quiet", str(REPOSITORY), str(tmp_path / "agentix")]
    subprocess.run(clone, check=True)
    root = write_project(tmp_path / "project")
    built = agentix("build", root)
    compressed = agentix("build", root, "--compress", "zstd")
    assert compressed["digest"] == built["digest"]
    file = Path(compressed["bundle"])
    assert file.name.endswith(".bundle.tar.zst")
    assert file.stat().st_size == compressed["size"] < built["size"] / 2
    assert zstd.decompress(file.read_bytes()) == Path(built["bundle"]).read_bytes()

    first = agentix("bundle", "push", file, name)
    assert first["bundle"] == built["digest"]
    assert first["sent"] == first["layers"] > 5
    before = agentix("bundle", "inspect", built["bundle"])["closure"]

    (root / "tiny_job.py").write_text("def answer():\n    return 43\n")
    edited = agentix("build", root, "--output", tmp_path / "edited.tar")
    after = agentix("bundle", "inspect", edited["bundle"])["closure"]
    changed = after.keys() - before.keys()
    assert 0 < len(changed) < len(after) / 2
    front.clear()
    second = agentix("bundle", "push", edited["bundle"], name)
    assert second["sent"] == len(changed)
    assert len(front.uploads()) == len(changed) + 1, "and the manifest.json"
    assert second["size"] < first["size"] / 10

    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "elsewhere"))
    pulled = agentix("bundle", "pull", first["reference"])
    assert pulled["bundle"] == built["digest"]
    assert pulled["path"] == f"{tmp_path}/elsewhere/bundles/{built['digest'].replace(':', '-')}"
    front.clear()
    pulled = agentix("bundle", "pull", name)
    assert pulled["bundle"] == edited["digest"]
    assert pulled["fetched"] == len(changed)
    assert len(front.fetched()) == len(changed) + 1
    pulled = agentix("bundle", "pull", name, "--output", tmp_path / "pulled.tar")
    assert (tmp_path / "pulled.tar").read_bytes() == Path(edited["bundle"]).read_bytes()


def test_what_compress_means_and_how_the_file_is_called_agree(tmp_path: Path) -> None:
    root = write_project(tmp_path / "project")
    for output, compress in (("x.tar", "zstd"), ("x.tar.zst", "none")):
        command = [*AGENTIX, "build", str(root), "--output", output, "--compress", compress]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert result.returncode == 1
        assert "as what --compress asks for is called" in result.stderr
        assert result.stderr.count("\n") == 1
