"""`nix build .#bundle` gives what `agentix build` gives, from a clean clone and with no network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.nix, pytest.mark.machine_store, pytest.mark.slow]
REPOSITORY = Path(__file__).parents[2]


def run(*words: str | Path, cwd: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_flake_builds_the_same_bundle_by_the_readmes_commands(tmp_path: Path) -> None:
    readme = (REPOSITORY / "README.md").read_text()
    commands = re.search(
        r"\n    (agentix fetch .*)\n    (nix .* build \.#bundle)\n    (agentix deploy .*)\n", readme
    )
    assert commands is not None
    clone = tmp_path / "clone"
    run("git", "clone", "--quiet", REPOSITORY, clone, cwd=tmp_path)
    fetch, build, deploy = commands.groups()
    run("sh", "-c", fetch, cwd=clone)
    offline = "unshare --net " if os.geteuid() == 0 else ""
    run("sh", "-c", f"{offline}{build} --no-update-lock-file", cwd=clone)
    deployed = run("sh", "-c", deploy, cwd=clone).splitlines()[0]

    words = ("agentix", "build", "examples/hello-world", "--format", "json")
    built = json.loads(run(*words, cwd=clone))
    assert (clone / "result").resolve() == Path(built["store_path"])
    assert deployed.endswith(built["digest"].replace(":", "-"))
    assert run("git", "status", "--porcelain", cwd=clone) == ""
