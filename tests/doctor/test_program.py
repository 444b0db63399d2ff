"""What a program says of itself, and what it is worth when it does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentix.doctor import registries
from agentix.doctor.program import installed, version

if TYPE_CHECKING:
    from pathlib import Path


def program(folder: Path, name: str, script: str) -> Path:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("nix-store (Nix) 2.8.0", "2.8.0"),
        ("nix-store (Determinate Nix 3.6.2) 2.29.0", "2.29.0"),
        ("gpgv (GnuPG) 2.2.40\nlibgcrypt 1.10.1", "2.2.40"),
        ("git version 2.39.5", "2.39.5"),
    ],
)
def test_the_version_is_the_programs_own(tmp_path: Path, said: str, number: str) -> None:
    told = program(tmp_path, "told", f"cat <<'END'\n{said}\nEND")
    assert version([str(told), "--version"]) == number


def test_a_program_that_only_some_need_is_no_problem_when_it_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "skopeo", "echo a library is missing >&2; exit 127")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    [finding] = installed("skopeo", needed="images are not to be had")()
    assert (finding.level, finding.advice) == ("note", "reinstall skopeo")
    assert "a library is missing; images are not to be had" in finding.text


def test_an_npm_that_hangs_is_no_problem_to_who_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "npm", "exec sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("agentix.doctor.program.PATIENCE", 0.1)
    [finding] = registries.npm_registry()
    assert finding.level == "note"
    assert "does not answer npm within" in finding.text
