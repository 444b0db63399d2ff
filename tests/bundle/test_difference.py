"""Two trees are compared file by file, and each difference is told where it begins."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from agentix.bundle.difference import differences, tree_differences
from agentix.bundle.place import aligned, where
from agentix.bundle.references import References
from agentix.bundle.view import tree_items
from bundle.handmade import Link, Program, plant, store_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Told = Callable[[Any, Any], list[str]]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    def tell(old: Any, new: Any) -> list[str]:
        plant(tmp_path / "old", old)
        plant(tmp_path / "new", new)
        return [str(found) for found in tree_differences(tmp_path / "old", tmp_path / "new")]

    return tell


def test_equal_trees_do_not_differ(told: Told) -> None:
    tree = {"a": b"1", "b": {"c": Program(b"2"), "d": Link("a")}, "e": {}}
    assert told(tree, tree) == []


def test_each_kind_of_difference_is_told(told: Told) -> None:
    old = {
        "gone": {"inside": b""},
        "kind": b"",
        "link": Link("there"),
        "mode": Program(b"same"),
        "same": b"same",
        "sub": {"text": b"one\ntwo\nthree\n", "z": b""},
    }
    new = {
        "come": {"inside": {"deeper": b""}},
        "kind": {"inside": b""},
        "link": Link("elsewhere"),
        "mode": b"same",
        "same": b"same",
        "sub": {"text": b"one\n2\nthree\n", "z": b""},
    }
    assert told(old, new) == [
        "come: added",
        "gone: removed",
        "kind: kind, file → folder",
        "link: target, there → elsewhere",
        "mode: mode, executable → not executable",
        "sub/text: content, line 2: 'two' → '2', 14 → 12 bytes",
    ]


def test_roots_that_are_no_folders_are_compared(told: Told) -> None:
    assert told(b"a", b"b") == [".: content, line 1: 'a' → 'b'"]


def test_hostile_names_and_texts_are_shown_harmlessly(told: Told) -> None:
    (found,) = told({"\x1b[31m": b"\x1b[1mx\n"}, {"\x1b[31m": b"\x1b[2mx\n"})
    assert found.isprintable()
    assert "line 1" in found


def text(old: bytes, new: bytes, size: int = 7) -> str | None:
    def read(data: bytes) -> Any:
        return lambda: (data[i : i + size] for i in range(0, len(data), size))

    return where(read(old), read(new))


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_the_place_does_not_depend_on_how_a_file_is_read(size: int) -> None:
    lines = [f"line {n} of the text\n".encode() for n in range(1, 400)]
    changed = [*lines[:300], b"line 301 is another\n", *lines[301:]]
    assert text(b"".join(lines), b"".join(changed), size) == (
        "line 301: 'line 301 of the text' → 'line 301 is another'"
    )
    assert text(b"\0" * 999, b"\0" * 500 + b"\1" + b"\0" * 498, size) == "byte 501"
    assert text(b"a\nb\n", b"a\nb\nc\n", size) == "line 3: nothing → 'c'"
    assert text(b"same", b"same", size) is None


def test_of_a_long_line_the_part_that_differs_is_shown() -> None:
    found = text(b"x" * 5000 + b"old" + b"y" * 100, b"x" * 5000 + b"new" + b"y" * 100)
    assert found is not None
    assert "xold" in found
    assert "xnew" in found
    assert len(found) < 200


def test_pieces_are_aligned_whatever_their_sizes() -> None:
    old, new = iter([b"", b"abc", b"d"]), iter([b"a", b"", b"bcdef", b"g"])
    assert list(aligned(old, new)) == [
        (b"a", b"a"),
        (b"bc", b"bc"),
        (b"d", b"d"),
        (b"", b"ef"),
        (b"", b"g"),
    ]


def archive(*members: tuple[str, str], year: int = 1980) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members:
            made.writestr(zipfile.ZipInfo(name, (year, 1, 2, 3, 4, 6)), content)
    return file.getvalue()


def test_in_an_archive_the_member_is_named() -> None:
    one, two = ("a.py", "x = 1\n"), ("b.py", "y = 1\n")
    old = archive(one, two)
    assert text(old, archive(one, ("b.py", "y = 2\n"))) == "member b.py, line 1: 'y = 1' → 'y = 2'"
    assert text(old, archive(one)) == "member b.py only in the first"
    assert text(archive(one), old) == "member b.py only in the second"
    assert text(old, archive(two, one)) == "the order of its members"
    assert text(old, archive(one, two, year=2020)) == (
        "member a.py, its time: 1980-01-02 03:04:06 → 2020-01-02 03:04:06"
    )
    assert text(old, old[:-20] + b"damaged, so no archive") == f"byte {len(old) - 20 + 1}"


@pytest.mark.parametrize("comment", [b"", b"a comment", b"PK\5\6" + b"x" * 40])
def test_an_archive_with_a_huge_directory_is_not_read_as_one(
    comment: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes of the file for each member become many in memory."""

    def made(last: str) -> bytes:
        file = io.BytesIO(archive(*((str(n), "x") for n in range(99)), ("last", last)))
        with zipfile.ZipFile(file, "a") as opened:
            opened.comment = comment
        return file.getvalue()

    old, new = made("1"), made("2")
    if comment[:2] != b"PK":  # else zipfile itself cannot tell where the directory ends
        assert text(old, new) == "member last, line 1: '1' → '2'"
    monkeypatch.setattr("agentix.bundle.place._LARGEST_DIRECTORY", 4000)
    opened: list[object] = []
    monkeypatch.setattr(zipfile, "ZipFile", opened.append)
    assert "byte" in str(text(old, new))
    assert opened == []


def test_an_archive_that_takes_much_memory_is_not_unpacked() -> None:
    """LZMA lets a member choose how much: up to 4 GiB."""
    pair = []
    for content in ("1", "2"):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as made:
            made.writestr(zipfile.ZipInfo("x"), content, zipfile.ZIP_LZMA)
        pair.append(file.getvalue())
    assert str(text(pair[0], pair[1])).startswith("byte ")


def test_large_files_are_compared_in_little_memory(tmp_path: Path) -> None:
    pair = (store_name("a"), store_name("b"))
    for name, end in (("old", b"1"), ("new", b"2")):
        (tmp_path / name).mkdir()
        with (tmp_path / name / "large").open("wb") as file:
            file.seek(128 * 1024 * 1024)
            file.write(end)
    tracemalloc.start()
    try:
        old, new = (tree_items(tmp_path / name) for name in ("old", "new"))
        (found,) = differences(old, new, References([pair]))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(found) == f"large: content, byte {128 * 1024 * 1024 + 1}"
    assert peak < 16 * 1024 * 1024


def test_mentioned_paths_are_read_as_if_they_had_kept_their_hash() -> None:
    one, other = store_name("numpy-1"), store_name("numpy-2-with-more")
    third = store_name("third")
    references = References([(one, other), (third, store_name("fourth"))])
    old = f"#!/nix/store/{one}/bin/python\nrest /nix/store/{one}".encode()
    new = f"#!/nix/store/{other}/bin/python\nrest /nix/store/{other}".encode()
    for size in (1, 10, 50, 10_000):
        pieces = [
            iter([data[i : i + size] for i in range(0, len(data), size)]) for data in (old, new)
        ]
        read = [b"".join(references.pieces(side, pieces[side])) for side in (0, 1)]
        assert read[0] == read[1] == old
    assert references.met == {0}
    unknown = f"/nix/store/{store_name('unknown')}/x /nix/store/{other[:20]}".encode()
    assert references.text(1, unknown) == unknown
