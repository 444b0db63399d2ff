"""A project becomes a bundle: once, again, interrupted, offline, and when it cannot."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentix import nix
from agentix.build import realise
from agentix.build.build import build_bundle
from agentix.build.fetch import fetch_project
from agentix.build.forecast import forecast
from agentix.build.lock import check_lock, write_lock
from agentix.cli.progress import terminal_progress
from agentix.errors import FetchError, LockError, NixError, ProjectError
from agentix.nix import program
from agentix.progress import SILENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix.build.built import BuiltBundle

pytestmark = pytest.mark.nix

REPOSITORY = Path(__file__).parents[2]
AGENTIX = [str(Path(sys.executable).parent / "agentix")]


def write_project(root: Path, name: str = "tiny-job") -> Path:
    module = name.replace("-", "_")
    root.mkdir(parents=True, exist_ok=True)
    (root / "pyproject.toml").write_text(
        f"""[project]
name = "{name}"
version = "1.0"
requires-python = ">=3.11"

[build-system]
requires = ["hatchling>=1.27"]
build-backend = "backend"
backend-path = ["."]

[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]

[tool.agentix]
python = "3.11"

[tool.uv.sources]
agentix-runtime = {{ path = "../agentix/runtime" }}
"""
    )
    (root / "backend.py").write_text("from hatchling.build import *\n")
    (root / f"{module}.py").write_text("def answer():\n    return 42\n")
    (root / ".gitignore").write_text(".env\ndist/\n")
    (root / ".env").write_text("PASSWORD=do-not-ship\n")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has been locked and built once, with a runtime that nobody is editing."""
    folder = tmp_path_factory.mktemp("shelf")
    clone = ["git", "clone", "--quiet", str(REPOSITORY), str(folder / "agentix")]
    subprocess.run(clone, check=True)
    root = write_project(folder / "project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTIX_CACHE_DIR", str(folder / "cache"))
        patch.delenv("CI", raising=False)
        build_bundle(root)
    return folder


@pytest.fixture
def root(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that project, locked, with a cache of its own."""
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CI", raising=False)
    copy = shelf / tmp_path.name  # as far from the runtime as the original
    shutil.copytree(shelf / "project", copy, ignore=shutil.ignore_patterns("dist"))
    return copy


def tar_text(bundle: BuiltBundle) -> bytes:
    return bundle.path.read_bytes()


def snapshot(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, path.lstat().st_size)
        for path in sorted(folder.rglob("*"))
        if ".git" not in path.parts
    }


# Once


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


# Again


def test_an_unchanged_project_is_not_built_and_not_written_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_bundle(root)
    written = first.path.stat().st_mtime_ns
    monkeypatch.setattr(realise, "realise", lambda *_: pytest.fail("it was built again"))
    os.utime(root / "tiny_job.py")
    second = build_bundle(root)
    assert second.cached
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
def test_building_twice_to_compare_gives_the_same(root: Path) -> None:
    first = build_bundle(root)
    assert build_bundle(root, check=True).sha256 == first.sha256


@pytest.mark.slow
def test_a_link_that_leads_out_is_told_before_somebody_misses_it(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "more.py").symlink_to("../agentix/README.md")
    with terminal_progress() as progress:
        build_bundle(root, progress=progress)
    assert f"warning: {root}/more.py leads out of the source" in capsys.readouterr().err


def test_a_project_that_differs_each_time_is_found_out(root: Path) -> None:
    (root / "backend.py").write_text(
        "from hatchling.build import *\n"
        "import uuid\n"
        "def build_wheel(*a, **k):\n"
        "    import hatchling.build as real\n"
        "    open('tiny_job.py', 'a').write(f'x = {uuid.uuid4().hex!r}\\n')\n"
        "    return real.build_wheel(*a, **k)\n"
    )
    with pytest.raises(NixError, match="not reproducible"):
        build_bundle(root, check=True)
    assert not (root / "dist").exists()


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


# Failing


def test_a_failing_backend_is_quoted_and_leaves_what_was_there(root: Path) -> None:
    first = build_bundle(root)
    before = snapshot(root / "dist")
    (root / "backend.py").write_text(
        "from hatchling.build import *\n"
        "def build_wheel(*a, **k):\n    raise SystemExit('the flux capacitor is empty')\n"
    )
    with pytest.raises(NixError, match=r"building tiny-job\S* failed with exit status 1") as caught:
        build_bundle(root)
    assert "flux capacitor" in caught.value.log
    assert snapshot(root / "dist") == before
    assert first.path.exists()


def test_a_failure_on_the_command_line_is_one_line_and_status_one(root: Path) -> None:
    (root / "backend.py").write_text("raise ImportError('no such backend')\n")
    result = subprocess.run([*AGENTIX, "build", str(root)], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("agentix: building tiny-job")
    assert "ImportError: no such backend" in last
    assert "Traceback" not in result.stderr
    assert result.stderr.count("no such backend") == 1


def test_what_a_failing_backend_printed_is_shown_above_the_error(root: Path) -> None:
    (root / "backend.py").write_text(
        "from hatchling.build import *\n"
        "def build_wheel(*a, **k):\n    print('the last words')\n    raise ValueError('nope')\n"
    )
    result = subprocess.run([*AGENTIX, "build", str(root)], capture_output=True, text=True)
    assert result.returncode == 1
    assert "  | the last words\n" in result.stderr
    assert "  | ValueError: nope\n" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("agentix: building tiny-job")
    assert not (root / "dist").exists()


@pytest.mark.parametrize("name", ["../../victim", "/abs", "a/b:c"])
def test_a_name_cannot_lead_out_of_the_folder(root: Path, tmp_path: Path, name: str) -> None:
    before = snapshot(root.parent)
    for more in ([], ["--dry-run"]):
        command = [*AGENTIX, "build", str(root), "--name", name, *more]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 1
        assert "a bundle cannot be called" in result.stderr
    assert snapshot(root.parent) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a Python project"),
        ("[tool.x]\n", r"no \[project\] table"),
        ("[", "not valid TOML"),
    ],
)
def test_what_is_no_project_is_said_to_be_none(
    tmp_path: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ProjectError, match=message):
        build_bundle(tmp_path)


def test_an_output_that_cannot_be_written_is_named(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = subprocess.run(
        [*AGENTIX, "build", str(root), "-o", str(tmp_path / "file" / "x.tar")],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert f"cannot write into {tmp_path / 'file'}" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_build_leaves_nothing_half_made(
    root: Path, tmp_path: Path, number: signal.Signals
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    marker = f"marked-{time.time_ns()}"
    (root / "backend.py").write_text(
        "from hatchling.build import *\nimport subprocess, sys\n"
        "def build_wheel(*a, **k):\n"
        f"    subprocess.run([sys.executable, '-c', 'import time; time.sleep(3600)', {marker!r}])\n"
    )
    environment = os.environ | {"TMPDIR": str(scratch)}
    process = subprocess.Popen(
        [*AGENTIX, "build", str(root)], env=environment, stderr=subprocess.PIPE, text=True
    )
    _until(lambda: _running(marker), "the backend starts")
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(number, -number)
    assert "Traceback" not in errors
    _until(lambda: not _running(marker), "the backend ends")
    assert not (root / "dist").exists()
    if number != signal.SIGKILL:
        assert list(scratch.iterdir()) == []


def _running(marker: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if marker.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def _until(happened: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end, f"not within a minute: {what}"
        time.sleep(0.05)


# Locks, offline, forecasts


def test_a_lock_that_no_longer_fits_is_renewed_but_not_offline_and_not_in_ci(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root / "pyproject.toml"
    file.write_text(file.read_text().replace("1.0", "1.1"))
    with pytest.raises(LockError, match=r"bundle\.lock is outdated; run `agentix lock`"):
        check_lock(root)
    with pytest.raises(LockError, match="is outdated, and offline"):
        build_bundle(root, offline=True)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(LockError, match="is outdated, and CI"):
        build_bundle(root)
    monkeypatch.delenv("CI")
    assert build_bundle(root).version == "1.1"
    check_lock(root)


def test_offline_builds_what_is_there_and_says_what_is_not(root: Path) -> None:
    assert build_bundle(root, offline=True).path.exists()
    (root / "bundle.lock").unlink()
    with pytest.raises(LockError, match="is missing, and offline"):
        build_bundle(root, offline=True)


def locked_wheel(root: Path, package: str) -> str:
    """Return the wheel of *package* that the lock takes on this machine."""
    lock = json.loads((root / "bundle.lock").read_text())
    wheels: list[str] = lock["platforms"]["linux/amd64"]["wheels"]
    return next(name for name in wheels if name.startswith(f"{package}-"))


def test_offline_with_an_artifact_missing_names_it(root: Path) -> None:
    name = locked_wheel(root, "msgpack")
    lock = json.loads((root / "bundle.lock").read_text())
    lock["artifacts"][name]["sha256"] = "0" * 64
    (root / "bundle.lock").write_text(json.dumps(lock))
    with pytest.raises(FetchError) as caught:
        build_bundle(root, offline=True)
    assert f"1 artifact is not in the Nix store, and offline nothing is fetched: {name}" in str(
        caught.value
    )


def test_an_artifact_left_behind_by_a_crash_is_put_right_by_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path exists, so nothing seems to be missing, but Nix does not know it."""
    file = tmp_path / "artifact"
    file.write_text(f"{time.time_ns()}")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    path = Path(nix.fixed_path("artifact", sha256))
    if not os.access(path.parent, os.W_OK):
        pytest.skip("the store belongs to somebody else, who alone can leave something behind")
    path.write_text("half")
    (tmp_path / "build.nix").write_text(
        f"""{{ plan }}: derivation {{ name = "artifact"; system = builtins.currentSystem;
        builder = "/nothing"; outputHashAlgo = "sha256"; outputHash = "{sha256}"; }}"""
    )
    monkeypatch.setattr(realise, "expressions", lambda: tmp_path)
    store = nix.find()

    def bring(*, thorough: bool = False) -> bool:
        assert thorough
        return bool(nix.add_fixed([file], nix=store))

    class AnyPlan:
        def dumps(self) -> str:
            return "{}"

    link = tmp_path / "result"
    built = realise._build(AnyPlan(), link, store, bring, SILENT)  # type: ignore[arg-type]
    assert built.read_bytes() == file.read_bytes()

    def bring_nothing(*, thorough: bool = False) -> bool:
        return False

    (tmp_path / "build.nix").write_text('{ plan }: throw "no"')
    with pytest.raises(NixError, match="no"):
        realise._build(AnyPlan(), link, store, bring_nothing, SILENT)  # type: ignore[arg-type]


def test_a_forecast_changes_nothing_and_tells_what_a_build_would_do(
    root: Path, tmp_path: Path
) -> None:
    before = snapshot(root)
    plan = forecast(root)
    assert (plan.lock, plan.name, plan.version, plan.up_to_date) == (
        "current",
        "tiny-job",
        "1.0",
        False,
    )
    assert plan.sources is not None
    assert plan.sources["tiny-job"] == 4
    assert plan.fetch == ()
    assert snapshot(root) == before
    assert not list(tmp_path.iterdir())
    build_bundle(root)
    assert forecast(root).up_to_date
    command = [*AGENTIX, "build", str(root), "--dry-run", "--format", "json"]
    described = json.loads(subprocess.check_output(command))
    assert described["output"] == str(root / "dist/tiny-job-1.0-linux-amd64.bundle.tar")
    (root / "bundle.lock").unlink()
    assert forecast(root).lock == "missing"


def test_locking_again_says_whether_anything_changed(root: Path) -> None:
    command = [*AGENTIX, "lock", str(root)]
    assert "unchanged" in subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)
    (root / "bundle.lock").unlink()
    assert "written" in subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)
    assert write_lock(root).changed is False
    check = subprocess.run([*command, "--check"], capture_output=True, text=True)
    assert check.returncode == 0
    assert "up to date" in check.stdout


def test_fetching_a_project_leaves_nothing_for_the_build_to_fetch(root: Path) -> None:
    result = fetch_project(root)
    assert result.present > 10
    text = subprocess.check_output([*AGENTIX, "fetch", str(root)], text=True)
    assert text == f"nothing to fetch: all {result.present} files are in the Nix store\n"
    assert build_bundle(root, offline=True).path.exists()
