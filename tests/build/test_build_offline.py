"""What a build makes of locks and of what was fetched, with a network and without."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from tiny_job import AGENTIX, snapshot

from agentix import nix
from agentix.build import realise
from agentix.build.build import build_bundle
from agentix.build.fetch import fetch_project
from agentix.build.forecast import forecast
from agentix.build.lock import check_lock, write_lock
from agentix.errors import FetchError, LockError, NixError
from agentix.progress import SILENT

pytestmark = pytest.mark.nix


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
