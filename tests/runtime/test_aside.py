"""A bundle's Python restores the environment that was set aside to start it."""

from __future__ import annotations

import json
import subprocess
import sys

from local_runtime import python

TELL = "import os, sys, json; print(json.dumps([dict(os.environ), sys.executable]))"


def run(environment: dict[str, str], *command: str) -> tuple[dict[str, str], str]:
    """Run an interpreter and have it tell its environment."""
    told = subprocess.run(
        [*command, "-I", "-c", TELL], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stderr == ""
    found, executable = json.loads(told.stdout)
    return found, executable


def test_what_was_set_aside_comes_back_and_its_traces_go() -> None:
    aside = {
        "AGENTIX_ASIDE_LD_PRELOAD": "/x.so",
        "AGENTIX_ASIDE_LD_LIBRARY_PATH": "",
        "LANG": "C.UTF-8",
    }
    found, executable = run(aside, python())
    assert found == {"LD_PRELOAD": "/x.so", "LD_LIBRARY_PATH": "", "LANG": "C.UTF-8"}
    assert executable == python()


def test_the_interpreters_own_locale_is_not_passed_on() -> None:
    assert run({}, python())[0] == {}
    assert run({"LC_CTYPE": "C"}, python())[0] == {"LC_CTYPE": "C"}
    assert run({"LC_CTYPE": "C.UTF-8"}, python())[0] == {"LC_CTYPE": "C.UTF-8"}


def test_outside_a_bundle_it_is_not_there() -> None:
    assert run({"AGENTIX_ASIDE_X": "1", "LANG": "C.UTF-8"}, sys.executable)[0] == {
        "AGENTIX_ASIDE_X": "1",
        "LANG": "C.UTF-8",
    }
