"""Store paths: computed, added, asked for, and followed to all that they refer to."""

from __future__ import annotations

import hashlib
import os
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentix import nix

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.nix
@pytest.mark.machine_store
@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize(
    "name", ["a", "busybox", "jq_1.6-2.1+deb12u2_amd64.deb", "x?y=z.whl", "A" * 200]
)
def test_a_store_path_is_computed_as_nix_computes_it(name: str, recursive: bool) -> None:
    for seed in range(4):
        digest = hashlib.sha256(f"{name} {seed}".encode()).hexdigest()
        kind = ["--recursive"] if recursive else []
        command = ["nix-store", "--print-fixed-path", *kind, "sha256", digest, name]
        expected = subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.strip()
        assert nix.fixed_path(name, digest, recursive=recursive) == expected


def test_a_store_name_has_only_what_nix_admits() -> None:
    assert nix.store_name("jq_1.6~rc1%3a_amd64.deb") == "jq_1.6-rc1-3a_amd64.deb"
    assert nix.store_name("six-1.0+local-py3.whl") == "six-1.0+local-py3.whl"


@pytest.mark.nix
@pytest.mark.machine_store
def test_a_file_is_added_where_it_was_computed_to_be(tmp_path: Path) -> None:
    files = [tmp_path / f"file-{number}" for number in range(3)]
    for file in files:
        file.write_text(f"{file.name} {uuid.uuid4()}")
    expected = [
        Path(nix.fixed_path(file.name, hashlib.sha256(file.read_bytes()).hexdigest()))
        for file in files
    ]
    assert nix.invalid(expected) == expected
    assert nix.add_fixed(files) == expected
    assert nix.add_fixed(files) == expected
    assert nix.invalid(expected) == []
    assert [path.read_bytes() for path in expected] == [file.read_bytes() for file in files]


@pytest.mark.nix
def test_a_path_on_disk_that_nix_does_not_know_is_invalid(tmp_path: Path) -> None:
    file = tmp_path / "left-behind"
    file.write_text(str(uuid.uuid4()))
    path = Path(nix.fixed_path(file.name, hashlib.sha256(file.read_bytes()).hexdigest()))
    if not os.access(path.parent, os.W_OK):
        pytest.skip("the store belongs to somebody else, who alone can leave something behind")
    path.write_text("half of it")
    assert nix.invalid([path]) == [path]
    assert nix.add_fixed([file]) == [path]  # and adding it puts that right
    assert path.read_bytes() == file.read_bytes()


@pytest.mark.nix
@pytest.mark.machine_store
def test_a_closure_is_everything_referred_to_with_hash_and_size(
    expression: Callable[..., Path], busybox: str
) -> None:
    inner = expression("$busybox mkdir $out; echo one > $out/text", "inner")
    outer = expression(
        "$busybox mkdir $out; echo $inner $busybox > $out/text", "outer", inner=str(inner)
    )
    root = nix.build(outer)
    found = nix.closure(root)
    names = [record.path.name[33:] for record in found]
    assert sorted(names) == ["busybox", "inner", "outer"]
    assert [record.path.name for record in found] == sorted(record.path.name for record in found)
    for record in found:
        command = ["nix-hash", "--type", "sha256", str(record.path)]
        assert subprocess.check_output(command, text=True).strip() == record.sha256
        query = ["nix-store", "--query", "--size", str(record.path)]
        size = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        assert int(size) == record.size
