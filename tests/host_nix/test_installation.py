"""Nix on this machine: found, fit for bundles, and told by what it needs."""

from __future__ import annotations

import json
import os
import pwd
import socket
import time
from typing import TYPE_CHECKING, NoReturn

import pytest

from agentix import nix
from agentix.errors import NixError
from agentix.nix import installation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_machine_without_nix_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installation, "_PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NixError, match=r"Nix is not installed .*apt-get install nix-bin"):
        nix.find()


@pytest.mark.nix
def test_nix_is_found_where_path_does_not_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert (nix.find().programs / "nix-build").exists()


@pytest.mark.parametrize(
    ("name", "value"), [("NIX_STORE_DIR", "/gnu/store"), ("NIX_REMOTE", "ssh://elsewhere")]
)
def test_a_store_that_bundles_cannot_come_from_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(NixError, match=f"{name} is {value}.*unset"):
        nix.find()


@pytest.mark.nix
@pytest.mark.machine_store
@pytest.mark.parametrize("home", [None, "", "/nonexistent", "/proc"])
def test_no_home_is_needed(
    monkeypatch: pytest.MonkeyPatch, expression: Callable[..., Path], home: str | None
) -> None:
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home)
    assert nix.build(expression("echo built > $out")).read_text() == "built\n"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: int) -> NoReturn:
        raise KeyError

    for name in ("NIX_REMOTE", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    monkeypatch.setattr(os, "access", lambda path, mode: str(path).endswith(("-store", "-build")))
    with pytest.raises(NixError, match="no home; set NIX_REMOTE"):
        nix.find()


@pytest.mark.nix
@pytest.mark.machine_store
def test_a_folder_for_temporary_files_that_cannot_be_used_is_not(
    monkeypatch: pytest.MonkeyPatch, expression: Callable[..., Path]
) -> None:
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    monkeypatch.setattr("tempfile.tempdir", None)  # what Python has found before
    assert nix.build(expression("echo built > $out")).read_text() == "built\n"


@pytest.mark.nix
def test_a_substituter_is_never_asked(
    monkeypatch: pytest.MonkeyPatch, expression: Callable[..., Path]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("NIX_CONFIG", f"substituters = {address}\nconnect-timeout = 30\n")
        started = time.monotonic()
        nix.build(expression("echo > $out"))
        assert time.monotonic() - started < 20
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.nix
@pytest.mark.machine_store
@pytest.mark.parametrize(
    "refusal",
    [
        "while setting up the build environment: mounting /proc: not permitted",
        "mounting /proc: Operation not permitted",
        "unable to set up a private mount namespace: Operation not permitted",
    ],
)
def test_a_machine_that_cannot_sandbox_builds_without(
    refusal: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    expression: Callable[..., Path],
) -> None:
    """Some containers let a namespace be made but not mounted in; Nix does not fall back then."""
    real = nix.find().programs
    shim = tmp_path / "bin" / "nix-build"
    shim.parent.mkdir()
    complaint = json.dumps(
        {
            "action": "msg",
            "level": 0,
            "msg": f"error: {refusal}",
        }
    )
    shim.write_text(
        "#!/bin/sh\n"
        'case "$*" in *"sandbox true"*)\n'
        f"  echo '@nix {complaint}' >&2; exit 1;;\n"
        "esac\n"
        f'exec {real}/nix-build "$@"\n'
    )
    shim.chmod(0o755)
    (shim.parent / "nix-store").symlink_to(real / "nix-store")
    monkeypatch.setenv("PATH", str(shim.parent), prepend=os.pathsep)
    assert nix.find().programs == shim.parent
    assert nix.build(expression("echo built > $out")).read_text() == "built\n"
