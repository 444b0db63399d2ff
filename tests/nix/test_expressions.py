"""What ``nix/`` promises: its own tests pass, and nothing in it goes without one or a word."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentix import nix

pytestmark = pytest.mark.nix
NIX = Path(__file__).parents[2] / "nix"
FILES = sorted(path for path in NIX.rglob("*.nix") if "fixtures" not in path.parts)
# What only wires others together, and is run by every build; and what would have to be fetched.
WIRING = {"build", "default", "nixpkgs"}
# Files whose function has another name, for want of one that Nix does not have already.
CALLED = {"lock": "readLock"}


def evaluated(expression: str) -> Any:
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
    return json.loads(done.stdout)


def suite(system: str) -> str:
    return f'import {NIX}/tests {{ library = import {NIX} {{ system = "{system}"; }}; }}'


@pytest.mark.parametrize("system", ["x86_64-linux", "aarch64-linux"])
def test_the_functions_keep_their_promises(system: str) -> None:
    assert evaluated(f"import {NIX}/tests/run.nix ({suite(system)})") == []


def test_the_runner_tells_what_fails_and_what_has_no_test() -> None:
    library = "{ good = 1; bad = 2; untested = 3; }"
    tests = "{ good.testA = { expr = 1; expected = 1; }; bad.testB = { expr = 2; expected = 1; }; }"
    found = evaluated(f"import {NIX}/tests/run.nix {{ library = {library}; tests = {tests}; }}")
    assert found == [
        {"test": "untested has no tests"},
        {"test": "testB", "got": 2, "expected": 1},
    ]


def test_the_function_of_every_file_has_a_test() -> None:
    tested = set(evaluated(f"builtins.attrNames ({suite('x86_64-linux')}).tests"))
    files = {path.stem for path in NIX.glob("*.nix")} - WIRING
    named = {CALLED.get(f, re.sub("-(.)", lambda m: m[1].upper(), f)): f for f in files}
    assert {file for name, file in named.items() if name not in tested} == set()


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(NIX)))
def test_every_file_begins_with_its_sentence_its_type_and_an_example(file: Path) -> None:
    comment = re.match(
        r"/\*\n  ([A-Z][^\n]+(?:\n[^\n]+)*?[.:])\n.*?\n\*/\n", file.read_text(), re.DOTALL
    )
    assert comment is not None
    for part in ("\n  Type: ", "\n  Example: "):
        assert part in comment[0]
