"""A project becomes a bundle: once, again, and at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from tiny_job import AGENTIX, tar_text

from agentix import nix
from agentix.build import realise
from agentix.build.build import build_bundle
from agentix.build.lock import check_lock
from agentix.cli.progress import terminal_progress
from agentix.nix import program
from agentix.replacing import draft_of

pytestmark = pytest.mark.nix


def test_a_project_becomes_a_tar_whose_digest_is_its_name(root: Path) -> None:
    bundle = build_bundle(root)
    assert bundle.path == root / "dist/tiny-job-1.0-linux-amd64.bundle.tar"
    command = ["sha256sum", str(bundle.path)]
    assert subprocess.check_output(command, text=True).split()[0] == bundle.sha256
    assert bundle.size == bundle.path.stat().st_size
    assert (bundle.store_path / "runtime/bootstrap.sh").exists()
    assert not bundle.cached
    assert "build" in bundle.timings
    with tarfile.open(bundle.path) as archive:
        names = archive.getnames()
    assert names[0] == "manifest.json"
    assert any(name.endswith("site-packages/tiny_job.py") for name in names)


def test_ignored_files_stay_at_home(root: Path) -> None:
    assert b"do-not-ship" not in tar_text(build_bundle(root))


def test_a_project_without_a_lock_is_locked_on_the_way(root: Path) -> None:
    (root / "bundle.lock").unlink()
    result = subprocess.run(
        [*AGENTIX, "build", str(root)], capture_output=True, text=True, check=True
    )
    path, digest = result.stdout.splitlines()
    assert Path(path) == root / "dist/tiny-job-1.0-linux-amd64.bundle.tar"
    assert digest.startswith("sha256:")
    assert (root / "bundle.lock").is_file()
    assert "bundle.lock" in result.stderr
    check_lock(root)


def test_the_name_and_the_place_can_be_chosen(root: Path, tmp_path: Path) -> None:
    bundle = build_bundle(root, name="other", output=tmp_path / "out")
    assert bundle.path == tmp_path / "out/other-1.0-linux-amd64.bundle.tar"
    assert bundle.name == "other"
    assert json.loads((bundle.store_path / "info.json").read_text())["name"] == "other"
    assert not (root / "dist").exists()


def test_an_unchanged_project_is_not_built_and_not_written_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_bundle(root)
    written = first.path.stat().st_mtime_ns
    monkeypatch.setattr(realise, "realise", lambda *_: pytest.fail("it was built again"))
    os.utime(root / "tiny_job.py")
    draft_of(first.path).write_bytes(b"half")  # by one that was killed
    second = build_bundle(root)
    assert second.cached
    assert list(second.path.parent.iterdir()) == [second.path]
    assert (second.path, second.sha256) == (first.path, first.sha256)
    assert second.path.stat().st_mtime_ns == written


def test_an_edit_changes_the_bundle_and_undoing_it_brings_it_back(root: Path) -> None:
    first = build_bundle(root)
    source = root / "tiny_job.py"
    text = source.read_text()
    source.write_text(text.replace("42", "43"))
    second = build_bundle(root)
    assert second.sha256 != first.sha256
    assert b"return 43" in tar_text(second)
    source.write_text(text)
    assert build_bundle(root).sha256 == first.sha256


def test_a_new_file_counts_before_git_knows_it(root: Path) -> None:
    first = build_bundle(root)
    (root / "pyproject.toml").write_text(
        (root / "pyproject.toml")
        .read_text()
        .replace('["tiny_job.py"]', '["tiny_job.py", "more.py"]')
    )
    (root / "more.py").write_text("more = 1\n")
    second = build_bundle(root)
    assert second.sha256 != first.sha256
    assert b"more.py" in tar_text(second)


def test_a_tar_that_was_removed_or_damaged_is_written_afresh(root: Path) -> None:
    first = build_bundle(root)
    content = tar_text(first)
    first.path.unlink()
    assert build_bundle(root).sha256 == first.sha256
    first.path.write_bytes(content[:-1] + b"!")
    again = build_bundle(root)
    assert again.sha256 == first.sha256
    assert tar_text(again) == content


def test_a_store_path_that_was_collected_is_built_again(root: Path) -> None:
    (root / "tiny_job.py").write_text(f"unique = {time.time_ns()}\n")
    first = build_bundle(root)
    program.run(nix.find(), "nix-store", ["--delete", str(first.store_path)])
    second = build_bundle(root)
    assert not second.cached
    assert (second.sha256, second.store_path) == (first.sha256, first.store_path)
    assert second.store_path.is_dir()


def test_a_tar_among_the_sources_is_none_of_them(root: Path) -> None:
    output = root / "mine.tar"
    first = build_bundle(root, output=output)
    assert build_bundle(root, output=output).cached
    output.write_bytes(b"damaged")
    assert build_bundle(root, output=output).sha256 == first.sha256


@pytest.mark.slow
def test_a_link_that_leads_out_is_told_before_somebody_misses_it(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "more.py").symlink_to("../agentix/README.md")
    with terminal_progress() as progress:
        build_bundle(root, progress=progress)
    assert f"warning: {root}/more.py leads out of the source" in capsys.readouterr().err


def test_two_builds_at_once_both_succeed(root: Path) -> None:
    (root / "tiny_job.py").write_text(f"unique = {time.time_ns()}\n")
    command = [*AGENTIX, "build", str(root), "--format", "json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    digests = {json.loads(process.communicate(timeout=120)[0])["digest"] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(digests) == 1
    assert [path.name for path in (root / "dist").iterdir()] == [
        "tiny-job-1.0-linux-amd64.bundle.tar"
    ]


def test_what_was_edited_during_a_build_is_not_taken_for_what_it_was(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = root / "tiny_job.py"
    text = source.read_text()
    build = realise._build

    def edit_and_build(*arguments: object) -> Path:
        source.write_text("late = 1\n")
        return build(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(realise, "_build", edit_and_build)
        assert b"late = 1" in tar_text(build_bundle(root))
    source.write_text(text)  # as it was when that build began
    again = build_bundle(root)
    assert not again.cached
    assert b"late = 1" not in tar_text(again)
