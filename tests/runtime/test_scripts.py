"""A script calls its own functions, with its own classes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from local_runtime import TESTS, LocalRuntime


@pytest.mark.parametrize(
    "command", [[str(TESTS / "local_runtime" / "script.py")], ["-m", "local_runtime.script"]]
)
def test_a_scripts_functions_and_classes_are_the_bundles(
    shared: LocalRuntime, command: list[str]
) -> None:
    ran = subprocess.run(
        [sys.executable, *command, shared.url, shared.token],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.stdout, ran.stderr) == ("__main__ 2\n", "")
