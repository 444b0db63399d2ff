"""``agentix bundle``: what a person reads, and what a script does."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from bundle.handmade import INFO, PYTHON, Workshop, root_tree, store_name
from tiny_job import AGENTIX

if TYPE_CHECKING:
    from pathlib import Path


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [*AGENTIX, "bundle", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def tars(tmp_path: Path) -> tuple[Path, Path]:
    """A bundle, and the same one after one of its packages was upgraded and a file edited."""
    (tmp_path / "shop").mkdir()
    workshop = Workshop(tmp_path / "shop")
    newer = INFO | {"packages": [INFO["packages"][0], INFO["packages"][1] | {"version": "1.2.0"}]}
    python: dict[str, Any] = dict(PYTHON)
    python["lib"] = python["lib"] | {"libc.so.6": b"x" * 4999 + b"y"}
    old = workshop.bundle({"msgpack-1.1.0": {"a.py": b"1\n"}})
    new = workshop.bundle(
        {"msgpack-1.2.0": {"a.py": b"2\n"}, "python-3.11": python}, root_tree(newer)
    )
    return old.write(tmp_path / "old.tar").path, new.write(tmp_path / "new.tar").path


def test_inspect_tells_a_person_what_there_is(tars: tuple[Path, Path]) -> None:
    done = run("inspect", tars[0])
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "hello-world 0.1.0 for linux/amd64"
    assert lines[1].startswith("digest    sha256:")
    assert "commands  hello" in lines
    assert "  msgpack      1.1.0  Apache Software License" in lines
    assert "  jq  1.6-2.1+deb12u1  Expat, GPL-2+ or Artistic" in lines
    assert lines[-1].endswith(store_name("msgpack-1.1.0"))


def test_inspect_tells_a_script_all_that_the_manifest_has(tars: tuple[Path, Path]) -> None:
    document = json.loads(run("inspect", tars[0], "--format", "json").stdout)
    digest = subprocess.check_output(["sha256sum", str(tars[0])], text=True).split()[0]
    assert document["digest"] == f"sha256:{digest}"
    assert document["tar_size"] == tars[0].stat().st_size
    assert document["size"] == sum(item["size"] for item in document["closure"].values())
    assert document["commands"] == ["hello"]
    assert document["packages"][1]["licences"] == INFO["packages"][1]["licences"]
    assert document["base"][0]["sha256"] == "d" * 64


def test_inspect_prints_a_bill_of_materials(tars: tuple[Path, Path]) -> None:
    done = run("inspect", tars[0], "--sbom")
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")


def test_diff_of_equal_bundles_succeeds(tars: tuple[Path, Path]) -> None:
    done = run("diff", tars[0], tars[0])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("the same: sha256:")
    assert json.loads(run("diff", tars[0], tars[0], "--format", "json").stdout)["same"] is True


def test_diff_tells_a_person_versions_first_then_paths_and_files(tars: tuple[Path, Path]) -> None:
    done = run("diff", *tars)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "msgpack 1.1.0 → 1.2.0"
    above = {line: lines[number] for number, line in enumerate(lines[1:])}
    assert above["  a.py: content, line 1: '1' → '2'"] == (
        "msgpack-1.1.0 → msgpack-1.2.0: 1 path differs"
    )
    assert above[f"  lib/libc.so.6: content, line 1: '…{'x' * 31}' → '…{'x' * 30}y'"] == (
        "python-3.11: 1 path differs, though built from the same inputs"
    )


def test_diff_tells_a_script_the_same(tars: tuple[Path, Path]) -> None:
    done = run("diff", *tars, "--format", "json")
    assert done.returncode == 1
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["same"] is False
    assert document["changes"] == [
        {"kind": "package", "name": "msgpack", "old": "1.1.0", "new": "1.2.0"}
    ]
    changed = [path for path in document["paths"] if path["kind"] == "changed"]
    assert changed == [
        {
            "kind": "changed",
            "old": store_name("msgpack-1.1.0"),
            "new": store_name("msgpack-1.2.0"),
            "count": 1,
            "files": [{"path": "a.py", "what": "content", "where": "line 1: '1' → '2'"}],
            "because": [],
        }
    ]


def test_what_is_no_bundle_fails_in_one_line_and_prints_nothing(
    tars: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "none.tar").write_bytes(b"none")
    for words in (("inspect", tmp_path / "none.tar"), ("diff", tars[0], tmp_path / "none.tar")):
        done = run(*words, "--format", "json")
        assert (done.returncode, done.stdout) == (1, "")
        assert len(done.stderr.splitlines()) == 1
        assert "none.tar" in done.stderr


def test_a_difference_is_told_however_deep_the_reader_stops(tars: tuple[Path, Path]) -> None:
    command = f"{AGENTIX[0]} bundle inspect {tars[0]} | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout == "hello-world 0.1.0 for linux/amd64\n"
    assert "Traceback" not in done.stderr
