from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from agentix import nix

pytestmark = pytest.mark.nix
NIX = Path(__file__).parents[2] / "nix"


@pytest.mark.parametrize("system", ["x86_64-linux", "aarch64-linux"])
def test_the_functions_keep_their_promises(system: str) -> None:
    library = f'import {NIX} {{ system = "{system}"; }}'
    expression = f"import {NIX}/tests/run.nix (import {NIX}/tests {{ library = {library}; }})"
    found = nix.find()
    command = [str(found.programs / "nix-instantiate"), *found.options(), "--read-write-mode"]
    done = subprocess.run(
        [*command, "--eval", "--strict", "--json", "--expr", expression],
        env=found.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
