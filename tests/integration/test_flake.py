"""`nix build .#bundle` gives what `agentix build` gives, from a clean clone and with no network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentix import nix

pytestmark = [pytest.mark.nix, pytest.mark.slow]
REPOSITORY = Path(__file__).parents[2]
AGENTIX = Path(sys.executable).with_name("agentix")


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_flake_builds_the_same_bundle_and_it_deploys_as_it_is(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    run("git", "clone", "--quiet", REPOSITORY, clone, cwd=tmp_path)
    project = clone / "examples/hello-world"
    run(AGENTIX, "fetch", project, cwd=tmp_path)
    flakes = ["--extra-experimental-features", "nix-command flakes"]
    words = ["nix", *flakes, *nix.find().options(), "build", ".#bundle", "--no-update-lock-file"]
    if os.geteuid() == 0:
        words = ["unshare", "--net", *words]
    run(*words, "--out-link", tmp_path / "result", cwd=clone)

    built = json.loads(run(AGENTIX, "build", project, "--format", "json", cwd=tmp_path))
    assert (tmp_path / "result").resolve() == Path(built["store_path"])
    deploy = (AGENTIX, "deploy", "bubblewrap", tmp_path / "result", "--format", "json")
    deployed = json.loads(run(*deploy, cwd=tmp_path))
    assert deployed["bundle"].endswith(built["digest"].replace(":", "-"))
    assert run("git", "status", "--porcelain", cwd=clone) == ""
