"""NAR hashes are those of Nix, whatever the tree holds."""

from __future__ import annotations

import hashlib
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from agentix import nix
from agentix.bundle.nar import Nar, OutOfOrder, nar_hash
from agentix.errors import BundleError
from bundle.handmade import Link, Program, nar, plant

if TYPE_CHECKING:
    from pathlib import Path

ODD = {
    "empty folder": {},
    "empty file": b"",
    "a": {"z": b"1"},
    "a-b": b"sorts between a and a0 only when compared by component",
    "a.b": b"2",
    "a0": b"3",
    b"not utf-8 \xff\xfe": b"latin",
    "schön": Link("nowhere/ä"),
    "new\nline": b"\0",
    "-leading dash": Link("/absolute/../odd//target"),
    "program": Program(b"#!/bin/sh\n"),
    "sizes": {str(n): b"x" * n for n in (1, 7, 8, 9, 4095, 65535, 65536, 65537, 300_000)},
    "large": b"0123456789abcdef" * 200_000,
    "deep": {"a": {"b": {"c": {"d": {"e": b"bottom"}}}, "b.c": Link("a")}},
}


@pytest.mark.parametrize(
    "tree",
    [b"", b"one file", Program(b"one program"), Link("one link"), {}, {"x": {}}, ODD],
    ids=["empty", "file", "program", "link", "folder", "nested", "odd"],
)
def test_hash_and_size_are_those_of_the_serialisation(tmp_path: Path, tree: object) -> None:
    plant(tmp_path / "tree", tree)
    result = nar_hash(tmp_path / "tree")
    assert (result.sha256, result.size) == (hashlib.sha256(nar(tree)).hexdigest(), len(nar(tree)))


@pytest.mark.nix
def test_hash_is_what_nix_store_dump_gives(tmp_path: Path) -> None:
    plant(tmp_path / "tree", ODD)
    dump = subprocess.run(
        ["nix-store", "--dump", tmp_path / "tree"], check=True, capture_output=True
    )
    assert nar_hash(tmp_path / "tree").sha256 == hashlib.sha256(dump.stdout).hexdigest()


@pytest.mark.nix
def test_hash_of_a_real_store_path_is_what_nix_recorded(tmp_path: Path) -> None:
    plant(tmp_path / "odd-tree", ODD)
    here = nix.find()

    def run(*command: str | Path) -> str:
        result = subprocess.run(
            command, env=here.environment(), check=True, capture_output=True, text=True
        )
        return result.stdout.strip()

    path = run("nix-store", "--add", tmp_path / "odd-tree")
    recorded = run("nix-store", "--query", "--hash", path).removeprefix("sha256:")
    expected = run("nix-hash", "--type", "sha256", "--to-base16", recorded)
    assert nar_hash(here.real(path)).sha256 == expected


def test_only_the_owners_execute_bit_counts(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    path.chmod(0o455)
    plain = nar_hash(path)
    path.chmod(0o744)
    assert nar_hash(path) != plain
    path.chmod(0o600)
    assert nar_hash(path) == plain


def test_what_no_store_path_can_hold_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BundleError, match=r"/pipe is neither a file, a folder nor a symbolic link"):
        nar_hash(tmp_path)


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ([(), ()], "twice"),
        ([(), (b"b",), (b"b",)], "twice"),
        ([(), (b"b",), (b"a",)], "out of order"),
        ([(), (b"b",), (b"b", b"x")], "no folder"),
        ([(b"a",)], "no folder"),
        ([(), (b"a", b"x")], "no folder"),
        ([(), (b"a", b"", b""), (b"b",)], "no folder"),
    ],
)
def test_members_come_in_the_one_order_or_not_at_all(
    members: list[tuple[bytes, ...]], problem: str
) -> None:
    stream = Nar(lambda data: None)

    def feed() -> None:
        for parts in members:
            stream.enter(parts)
            if parts:
                stream.symlink(b"target")
            else:
                stream.directory()

    with pytest.raises(OutOfOrder, match=problem):
        feed()


def test_a_folder_cannot_be_entered_again_after_it_was_left() -> None:
    stream = Nar(lambda data: None)
    for parts in [(), (b"a",), (b"b",)]:
        stream.enter(parts)
        stream.directory()
    with pytest.raises(OutOfOrder, match="not in an open folder"):
        stream.enter((b"a", b"late"))


def test_nothing_is_not_a_tree() -> None:
    with pytest.raises(OutOfOrder, match="no content"):
        Nar(lambda data: None).finish()
