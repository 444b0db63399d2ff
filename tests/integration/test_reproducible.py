"""The same project gives the same bundle, whoever builds it, where, and with which Nix."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from reproduce import debian
from reproduce.place import compare

from agentix import nix, platforms
from agentix.build import toolchain
from agentix.build.fetch import Needs, fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.nix, pytest.mark.slow]
PROJECT = debian.REPOSITORY / "examples/hello-world"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="agentix-reproducible-"))
    folder.chmod(0o755)
    yield folder
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    shutil.rmtree(folder)


@pytest.fixture
def another_debian() -> Path:
    """The root of the Debian that this machine is not."""
    if reason := debian.missing():
        pytest.skip(reason)
    return debian.other_debian()


def test_two_clones_in_other_folders_by_other_users_give_the_same_tar(open_folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    compared = compare(PROJECT, open_folder)
    assert len(set(compared.digests)) == 1
    here, there = (place.facts() for place in compared.places)
    assert not [key for key in here if here[key] == there[key]]
    # The second store had its files made one where they were equal: a tar shows nothing of that.
    assert compared.hard_links > 100


def test_another_debian_with_another_nix_builds_the_same_store_paths(
    another_debian: Path, tmp_path: Path
) -> None:
    here, there = debian.both(PROJECT, tmp_path)
    assert len(here) > 20
    assert here == there


def test_another_nix_finds_out_what_is_not_reproducible(
    another_debian: Path, tmp_path: Path
) -> None:
    seed = toolchain.seeds().programs[platforms.current().name]["busybox"]
    fetch(Needs((), (seed,)), project=PROJECT, python="3.11")
    debian.bring(another_debian, [seed.store_path], tmp_path)
    expression = tmp_path / "moody.nix"
    expression.write_text(
        f"""derivation {{ name = "moody"; system = builtins.currentSystem;
        builder = "${{builtins.storePath {seed.store_path}}}/bin/busybox"; unique = "{tmp_path}";
        args = ["sh" "-c" "mkdir $out; cat /proc/sys/kernel/random/uuid > $out/id"];
        PATH = "{seed.store_path}/bin"; }}"""
    )
    programs = tmp_path / "programs"
    programs.mkdir()
    scratch = '--bind "$TMPDIR" "$TMPDIR" --setenv TMPDIR "$TMPDIR"'
    for name in ("nix-build", "nix-instantiate", "nix-store"):
        words = shlex.join(debian.frame(another_debian, [tmp_path]))
        (programs / name).write_text(f'#!/bin/sh\nexec {words} {scratch} -- {name} "$@"\n')
        (programs / name).chmod(0o755)
    other = nix.Nix(programs, another_debian, daemon=False)
    first = nix.build(expression, nix=other)
    rebuilt = nix.rebuild(expression, nix=other)
    ((kept, second),) = rebuilt.unlike
    assert (rebuilt.steps, kept) == (1, first)
    assert (first / "id").read_text() != (second / "id").read_text()
