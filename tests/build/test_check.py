"""Building twice to compare: what is the same passes, and what is not is shown."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from bundle.cyclonedx_schema import faults
from tiny_job import AGENTIX

from agentix import nix
from agentix.build.build import build_bundle
from agentix.build.check import check_tar
from agentix.bundle.comparison import compare
from agentix.bundle.view import look_into
from agentix.errors import BundleError, NixError
from agentix.progress import SILENT

pytestmark = pytest.mark.nix

BACKEND = """
from hatchling.build import *
import time, uuid
def build_wheel(*a, **k):
    import hatchling.build as real
    open('tiny_job.py', 'a').write(f"x = '{time.time_ns()} {uuid.uuid4().hex}'\\n")
    return real.build_wheel(*a, **k)
"""
KEPT = re.compile(r"compare (\S+) with (\S+)")


def kept(message: str) -> tuple[Path, Path]:
    found = KEPT.search(message)
    assert found is not None, message
    first, second = found.groups()
    return Path(first), Path(second)


@pytest.mark.slow
def test_the_commands_of_the_page_do_what_it_says(root: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/reproducible.md").read_text()
    commands = re.findall(r"^\$ agentix (.*)$", page, re.MULTILINE)
    assert [" ".join(command.split()[:2]) for command in commands] == [
        "build --check",
        "build --output",
        "bundle diff",
        "bundle inspect",
        "bundle inspect",
    ]
    first = build_bundle(root)
    said = []
    for command in commands:
        words = [*AGENTIX, *command.replace("../", f"{tmp_path}/").split()]
        done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=280)
        assert done.returncode == ("diff" in words), done.stderr
        said.append(done.stdout)
        (root / "tiny_job.py").write_text("def answer():\n    return 43\n")
    assert said[0].split()[1] == f"sha256:{first.sha256}"
    source = "lib/python3.11/site-packages/tiny_job.py"
    assert f"  {source}: content, line 2: '    return 42' → '    return 43'\n" in said[2]
    assert "tiny-job 1.0, with other content\n" in said[2]
    assert "environment: follows tiny-job-1.0\n" in said[2]
    assert said[3].startswith("tiny-job 1.0 for linux/")
    bill = json.loads(said[4])
    assert not faults(bill)
    assert all("hashes" in component for component in bill["components"])
    assert sum("licenses" in c for c in bill["components"]) > 0.7 * len(bill["components"])


@pytest.mark.slow
def test_a_project_that_differs_each_time_is_found_out(root: Path) -> None:
    (root / "backend.py").write_text(BACKEND)
    result = subprocess.run(
        [*AGENTIX, "build", "--check", str(root)], capture_output=True, text=True, timeout=280
    )
    assert (result.returncode, result.stdout) == (1, "")
    said = result.stderr.splitlines()[-1]
    start = "agentix: tiny-job-1.0-wheel is not reproducible, a second build differs in "
    file = "tiny_job-1.0-py3-none-any.whl: content, member tiny_job.py, line 3: "
    assert said.startswith(start + file)
    assert re.match(r""""x = '.+'" → "x = '.+'".*; compare""", said.removeprefix(start + file)), (
        said
    )
    first, second = kept(said)
    assert second.name == f"{first.name}.check"
    wheels = [next(folder.glob("*.whl")).read_bytes() for folder in (first, second)]
    assert wheels[0] != wheels[1]
    assert not (root / "dist").exists()


def test_a_tar_that_is_not_what_was_written_is_found_out(root: Path, tmp_path: Path) -> None:
    bundle = build_bundle(root)
    closure = nix.closure(bundle.store_path)
    tar = tmp_path / "copy.tar"
    shutil.copy(bundle.path, tar)
    check_tar(tar, bundle.store_path, closure, SILENT)
    with tar.open("r+b") as file:
        file.seek(bundle.size // 2)
        byte = file.read(1)
        file.seek(bundle.size // 2)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(
        BundleError, match=r"copy\.tar is not what writing it again gives"
    ) as caught:
        check_tar(tar, bundle.store_path, closure, SILENT)
    first, second = kept(str(caught.value))
    assert first == tar
    assert second.read_bytes() == bundle.path.read_bytes()


def test_a_compressed_bundle_is_checked_by_the_tar_in_it(root: Path, tmp_path: Path) -> None:
    bundle = build_bundle(root, output=tmp_path, compress=True)
    check_tar(bundle.path, bundle.store_path, nix.closure(bundle.store_path), SILENT)


def test_what_nix_has_built_is_compared_as_it_lies_in_the_store(root: Path) -> None:
    first = build_bundle(root)
    (root / "tiny_job.py").write_text("def answer():\n    return 44\n")
    second = build_bundle(root)
    with look_into(first.store_path) as one, look_into(second.path) as other:
        assert one.digest() == first.sha256
        found = compare(one, other)
    kinds = {(path.new or "")[33:]: path.kind for path in found.paths}
    assert kinds == {"tiny-job-1.0": "changed", "environment": "follows", "bundle": "changed"}


def test_a_step_that_cannot_be_built_again_is_no_difference(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> nix.Rebuilt:
        raise NixError("building x failed with exit status 1: no space left on device")

    monkeypatch.setattr(nix, "rebuild", fails)
    with pytest.raises(NixError, match="no space left"):
        build_bundle(root, check=True)
    assert not (root / "dist").exists()
